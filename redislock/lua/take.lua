-- Takes a mutex that is free and was used not long ago: the common case, as lean as it
-- gets. KEYS: l. ARGV[1]: TTL and minimum hold in microseconds (16 digits each). ARGV[2]: id,
-- session, info, as in acquire.lua. ARGV[3]: how many milliseconds the key has to live.
-- Answers the token, or 0: it is not that simple, acquire.lua has to decide.
--
-- Comparing times as strings of 16 digits costs less than formatting numbers.

local v = redis.call('GET', KEYS[1])
if v and string.byte(v) == 70 then -- F
  local t = redis.call('TIME')
  local now = t[1] .. string.sub('000000', #t[2] + 1) .. t[2]
  -- A token that is not simply the time, or that begins a new granule, needs a look at the floor.
  if now > string.sub(v, 3, 18) and string.find(v, string.sub(now, 1, 9), 3, true) == 3 then
    redis.call('SET', KEYS[1], 'X0' .. now .. now .. ARGV[1] .. now .. ARGV[2], 'PX', ARGV[3])
    return tonumber(now)
  end
end
return 0
