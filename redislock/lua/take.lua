-- Fast path of acquire.lua for one or a few mutexes that are free and have a record. KEYS: the l of
-- each. ARGV, four for each: TTL and minimum hold in microseconds (16 digits each); id, session,
-- info, as in acquire.lua; how many milliseconds the key lives; how many tokens the grant takes.
-- Answers for each the token, or 0: acquire.lua must decide.
--
-- Times stay strings of 16 digits, because formatting numbers is expensive.

local answers, now = {}, nil
for i, l in ipairs(KEYS) do
  local v, token = redis.pcall('GET', l), 0 -- a key that is not a string must not fail the others
  if type(v) == 'string' and string.sub(v, 1, 2) == 'F0' then
    if not now then
      local t = redis.call('TIME')
      now = t[1] .. string.sub('000000', #t[2] + 1) .. t[2]
    end
    -- A token that is not just the time, or begins a new granule, needs acquire.lua to check the
    -- floor.
    if now - string.sub(v, 3, 18) >= tonumber(ARGV[4 * i]) and string.find(v, string.sub(now, 1, 9), 3, true) == 3 then
      redis.call('SET', l, 'X0' .. now .. now .. ARGV[4 * i - 3] .. now .. ARGV[4 * i - 2], 'PX', ARGV[4 * i - 1])
      token = tonumber(now)
    end
  end
  answers[i] = token
end
return #KEYS == 1 and answers[1] or answers
