-- Fast path of acquire.lua for one or a few mutexes that are free and have a record. KEYS: the l of
-- each. ARGV, four for each: TTL and minimum hold in microseconds (16 digits each); id, session,
-- info, as in acquire.lua; how many milliseconds the key lives; how many tokens the grant may take.
-- Answers for each the token, or 0: acquire.lua must decide.
--
-- Times stay strings of 16 digits, because formatting numbers is expensive.

local answers, now = {}, nil
for i, l in ipairs(KEYS) do
  local v, token = redis.pcall('GET', l), 0 -- a key that is not a string must not fail the others
  local last = type(v) == 'string' and string.match(v, '^F0(%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d)')
  if last then
    if not now then
      local t = redis.call('TIME')
      now = t[1] .. string.sub('000000', #t[2] + 1) .. t[2]
    end
    local p, n = now, tonumber(ARGV[4 * i])
    if n > 1 then -- as either in hooks.lua
      local all, one = math.max(now, last + n), math.max(now, last + 1)
      all = all + all % 2
      p = string.format('%016.0f', all <= now + AHEAD and all or one + 1 - one % 2)
    elseif p <= last then
      p = string.format('%016.0f', last + 1)
    end
    -- A token that begins a new granule needs acquire.lua to check the floor.
    if p <= MAXTOKEN and string.sub(p, 1, 9) == string.sub(last, 1, 9) then
      redis.call('SET', l, 'X0' .. p .. now .. ARGV[4 * i - 3] .. now .. ARGV[4 * i - 2], 'PX', ARGV[4 * i - 1])
      token = tonumber(p)
    end
  end
  answers[i] = token
end
return #KEYS == 1 and answers[1] or answers
