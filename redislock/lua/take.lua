-- Fast path of acquire.lua for one or a few mutexes that are free and have a record. KEYS: the l of
-- each. ARGV, four for each: TTL and minimum hold in microseconds (16 digits each); id, session,
-- info, as in acquire.lua; how many milliseconds the key lives; how many tokens the grant may take.
-- Answers for each the token, or 0: acquire.lua must decide.
--
-- Times stay strings of 16 digits, because formatting numbers is expensive.

local find, sub = string.find, string.sub
-- A key that is not a string must not fail the others: MGET has nil for it. It costs less than a GET
-- for each. A user who may not run it gets an error in place of a table.
local values = #KEYS == 1 and {redis.pcall('GET', KEYS[1])} or redis.pcall('MGET', unpack(KEYS))
-- Of a name that comes twice, the value is old when its second turn comes.
local answers, seen, now, clock = {}, #KEYS > 1 and {}, nil, nil
for i, l in ipairs(KEYS) do
  local v, n, token = values[i], ARGV[4 * i], 0
  if not (seen and seen[l]) and type(v) == 'string' and find(v, '^F0%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d') then
    if not now then
      local t = redis.call('TIME')
      now = t[1] .. sub('000000', #t[2] + 1) .. t[2]
      clock = tonumber(now)
    end
    local last, p = sub(v, 3, 18), now
    if n ~= '1' then -- as either in hooks.lua
      local all, one = math.max(now, last + n), math.max(now, last + 1)
      all = all + all % 2
      p = string.format('%016.0f', all <= now + AHEAD and all or one + 1 - one % 2)
    elseif p <= last then
      p = string.format('%016.0f', last + 1)
    end
    -- A token that begins a new granule needs acquire.lua to check the floor.
    if p <= MAXTOKEN and find(v, sub(p, 1, 9), 3, true) == 3 then
      -- A refusal must not fail the names before, which are granted; acquire.lua reports it.
      local r = redis.pcall('SET', l, 'X0' .. p .. now .. ARGV[4 * i - 3] .. now .. ARGV[4 * i - 2], 'PX', ARGV[4 * i - 1])
      if not (type(r) == 'table' and r.err) then token = p == now and clock or tonumber(p) end
    end
  end
  answers[i] = token
  if seen then seen[l] = true end
end
return #KEYS == 1 and answers[1] or answers
