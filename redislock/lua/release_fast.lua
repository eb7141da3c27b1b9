-- Fast path of release.lua for the most frequent case under load. Every unexpected value is left to
-- release.lua.

local a, v, sub = ARGV[1], redis.pcall('GET', KEYS[1]), string.sub
local zero = '0000000000000000'
if type(v) == 'string' and sub(v, 1, 18) == 'X1' .. sub(a, 1, 16) and sub(a, 17, 32) == zero
  and string.find(v, zero, 51, true) == 51 and string.find(v, ARGV[2], 83, true) == 83 then
  -- A mutex with waiters: the first of them gets it.
  local call, t = redis.call, redis.call('TIME')
  local now = t[1] .. sub('000000', #t[2] + 1) .. t[2]
  propose(sub(a, 33, 48))
  local token, last = agreed(now, now), sub(a, 1, 16)
  local first = redis.pcall('ZRANGE', KEYS[2], 0, 0)[1]
  local id = first and sub(first, 1, 1) == 'q' and sub(first, 2)
  local w = id and redis.pcall('HGET', KEYS[3], 'w' .. id)
  local _, digits = string.find(v, '^%d+', 3)
  local n, length = string.match(type(w) == 'string' and w or '', '^%d+x(%d%d%d%d%d%d%d%d%d%d)(%d%d)')
  n = tonumber(n)
  if n and n > 1 then
    token = string.format('%016.0f', either(math.max(token, last + n), math.max(token, last + 1), now))
  elseif token <= last then
    token = string.format('%016.0f', last + 1)
  end
  if length and digits and digits >= 84
    and sub(v, 19, 34) + sub(v, 35, 50) > tonumber(now) and sub(w, 1, 16) > now and sub(w, 33, 49) == zero .. 'x'
    and token > last and token <= MAXTOKEN and sub(token, 1, 9) == sub(last, 1, 9) then
    -- As in advance. Whether others wait is read before the first one leaves: see guard.
    local session, others = sub(w, 62, 61 + tonumber(length)), call('ZCARD', KEYS[2]) > 2
    local channel, publish, numsub = sub(KEYS[4], 1, -7) .. 's:' .. session, 'PUBLISH', 'NUMSUB'
    local where = string.byte(session)
    if where == 43 then -- +
      channel, publish, numsub = sub(KEYS[4], 1, -2) .. 's:' .. sub(session, 2), 'SPUBLISH', 'SHARDNUMSUB'
    elseif where == 45 then -- -
      channel, numsub = sub(KEYS[4], 1, -7) .. 's:' .. sub(session, 2), nil
    end
    if not numsub or call('PUBSUB', numsub, channel)[2] > 0 then
      -- If the script fails in between, no waiter was notified; it asks again.
      call('HDEL', KEYS[3], 'w' .. id)
      call('ZREM', KEYS[2], first, 'w' .. id)
      -- The lease runs from the waiter's last renewal; see grantNext.
      call('SET', KEYS[1], (others and 'X1' or 'X0') .. token .. sub(w, 1, 16) .. zero .. zero .. now
        .. string.format('%02d', #id) .. id .. sub(w, 60), 'KEEPTTL')
      call(publish, channel, id .. ' ' .. token .. stamp(now))
      return 0
    end
  end
end
