-- Gives a waiter the place that it has at the server whose order counts. KEYS: l, z, m, t. ARGV:
-- id, place.

local q = 'q' .. ARGV[1]
if redis.call('ZSCORE', KEYS[2], q) then
  redis.call('ZADD', KEYS[2], ARGV[2], q)
  redis.call('HSET', KEYS[3], 's', ARGV[2]) -- the next waiter comes after it, as at that server
end
return 0
