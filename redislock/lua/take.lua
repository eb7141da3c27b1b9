-- Takes mutexes that are free and were used not long ago: the common case, as lean as it
-- gets, for one name or a few. KEYS: the l of each. ARGV, three for each: TTL and minimum
-- hold in microseconds (16 digits each); id, session, info, as in acquire.lua; how many
-- milliseconds the key has to live. Answers, for each, the token, or 0: it is not that
-- simple, acquire.lua has to decide.
--
-- Comparing times as strings of 16 digits costs less than formatting numbers.

local answers, now = {}, nil
for i, l in ipairs(KEYS) do
  local v, token = redis.pcall('GET', l), 0 -- a key that is not a string must not spoil the others
  if type(v) == 'string' and string.sub(v, 1, 2) == 'F0' then
    if not now then
      local t = redis.call('TIME')
      now = t[1] .. string.sub('000000', #t[2] + 1) .. t[2]
    end
    -- A token that is not simply the time, or that begins a new granule, needs a look at the floor.
    if now > string.sub(v, 3, 18) and string.find(v, string.sub(now, 1, 9), 3, true) == 3 then
      redis.call('SET', l, 'X0' .. now .. now .. ARGV[3 * i - 2] .. now .. ARGV[3 * i - 1], 'PX', ARGV[3 * i])
      token = tonumber(now)
    end
  end
  answers[i] = token
end
return #KEYS == 1 and answers[1] or answers
