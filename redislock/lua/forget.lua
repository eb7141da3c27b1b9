-- Takes names out of the index that the store knows nothing of any more. KEYS: i, then the
-- l of each. ARGV: the names. Answers how many that were.

local gone = 0
for n = 1, #ARGV do
  if redis.call('EXISTS', KEYS[n + 1]) == 0 then gone = gone + redis.call('ZREM', KEYS[1], ARGV[n]) end
end
return gone
