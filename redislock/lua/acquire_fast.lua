-- Fast path of acquire.lua for the most frequent case under load. Every unexpected value is left to
-- acquire.lua.

local a, v = ARGV[1], redis.pcall('GET', KEYS[1])
if type(v) == 'string' and string.byte(v) == 88 and string.sub(a, 1, 2) == 'x1' then -- X
  -- A mutex that is held, and a new waiter: it joins the queue.
  local call, sub = redis.call, string.sub
  local t, n = redis.call('TIME'), tonumber(string.sub(ARGV[2], 1, 2))
  local now, id = t[1] * 1000000 + t[2], sub(ARGV[2], 3, n + 2)
  local lives = sub(a, 3, 18) / 1000 + RETAIN / 2
  local l, z = call('PTTL', KEYS[1]), call('PTTL', KEYS[2])
  local waited = string.byte(v, 2) == 49
  local _, digits = string.find(v, '^X[01]%d+')
  if digits and digits >= 84 and sub(v, 3, 18) <= MAXTOKEN
    and sub(v, 19, 34) + sub(v, 35, 50) > now and l >= lives and (z >= lives or z == -2 and not waited)
    and string.find(v, sub(ARGV[2], 1, n + 2), 83, true) ~= 83
    and string.byte(v, 87 + sub(v, 83, 84)) ~= 33 -- !: it calls its session back
    and (z == -2 or redis.pcall('ZCOUNT', KEYS[2], LINE, now) == 0) then -- no waiter has expired
    local deadline = string.format('%.0f', now + sub(a, 3, 18))
    -- In this order: if the script fails in between, acquire.lua can handle what it leaves.
    if not waited then call('SETRANGE', KEYS[1], 1, '1') end
    local number = redis.pcall('HINCRBY', KEYS[3], 's', 1)
    if type(number) == 'number' and call('ZADD', KEYS[2], 'NX', number, 'q' .. id, deadline, 'w' .. id) == 2 then
      -- The record is as putPlace writes it.
      call('HSET', KEYS[3], 'w' .. id, deadline .. string.format('%016.0f', now) .. sub(a, 19, 34)
        .. 'x' .. sub(a, 35, 44) .. sub(ARGV[2], n + 3))
      if z == -2 then
        call('PEXPIRE', KEYS[2], l)
        call('PEXPIRE', KEYS[3], l)
      end
      return {0, call('ZCARD', KEYS[2]) / 2 - 1, now, v, place(id)}
    end
    v = nil -- it has changed
  end
end
