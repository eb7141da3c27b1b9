-- What acquire.lua does first: the case that is met most often under load. See there.

local a, v = ARGV[1], redis.call('GET', KEYS[1])
if v and string.byte(v) == 88 and string.sub(a, 1, 2) == 'x1' then -- X
  -- A mutex that somebody holds, and a new waiter: it joins the line.
  local call, sub = redis.call, string.sub
  local t, n = redis.call('TIME'), tonumber(string.sub(ARGV[2], 1, 2))
  local now, id = t[1] * 1000000 + t[2], sub(ARGV[2], 3, n + 2)
  local lives = sub(a, 3, 18) / 1000 + RETAIN / 2
  local l, z = call('PTTL', KEYS[1]), call('PTTL', KEYS[2])
  if sub(v, 19, 34) + sub(v, 35, 50) > now and l >= lives and (z >= lives or z == -2)
    and string.find(v, sub(ARGV[2], 1, n + 2), 83, true) ~= 83
    and (z == -2 or call('ZCOUNT', KEYS[2], LINE, now) == 0) then -- nobody in line is dead
    local deadline = string.format('%.0f', now + sub(a, 3, 18))
    -- The record is as putPlace writes it.
    if call('HSETNX', KEYS[3], 'w' .. id, deadline .. string.format('%016.0f', now) .. sub(a, 19, 34)
      .. 'x' .. sub(a, 35, 44) .. sub(ARGV[2], n + 3)) == 1 then
      call('ZADD', KEYS[2], call('HINCRBY', KEYS[3], 's', 1), 'q' .. id, deadline, 'w' .. id)
      if z == -2 then
        call('PEXPIRE', KEYS[2], l)
        call('PEXPIRE', KEYS[3], l)
      end
      if string.byte(v, 2) == 48 then call('SETRANGE', KEYS[1], 1, '1') end
      return {0, call('ZCARD', KEYS[2]) / 2 - 1, now, v, place(id)}
    end
  end
end
