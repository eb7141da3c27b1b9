-- Renews exclusive grants. KEYS: the l of each. ARGV[1]: TTL in microseconds. ARGV[2...]: of each
-- grant its token (16 digits), its id with its length. Answers the positions (from 1) of those that
-- it could not prove: refresh.lua must check them.

local call, sub, t = redis.call, string.sub, redis.call('TIME')
local now, ttl, rest = t[1] * 1000000 + t[2], tonumber(ARGV[1]), {}
local fresh = string.format('%016.0f', now) .. ARGV[1]
local px = string.format('%.0f', ttl / 1000 + RETAIN)
for i = 1, #KEYS do
  local a, v = ARGV[i + 1], redis.pcall('GET', KEYS[i]) -- a key that is not a string must not fail the others
  local _, digits = string.find(type(v) == 'string' and v or '', '^X[012]%d+')
  if digits and digits >= 84 and sub(v, 3, 18) == sub(a, 1, 16) and sub(v, 3, 18) <= MAXTOKEN
    and sub(v, 83, 66 + #a) == sub(a, 17) and sub(v, 19, 34) + sub(v, 35, 50) > now then
    local ms, hold = px, sub(v, 51, 66)
    if hold ~= '0000000000000000' or sub(v, 2, 2) ~= '0' then
      -- A minimum hold or a waiter may need the key for longer.
      ms = string.format('%.0f', math.max(ms, call('PTTL', KEYS[i])))
    end
    local state = sub(v, 1, 18) .. fresh .. sub(v, 51)
    if redis.pcall('SET', KEYS[i], state, 'PX', ms).err then
      -- When memory is full, a script may write after a command that needs no memory.
      call('PEXPIRE', KEYS[i], ms)
      call('SET', KEYS[i], state, 'PX', ms)
    end
  else
    rest[#rest + 1] = i
  end
end
return rest
