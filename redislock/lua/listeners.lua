-- Counts the subscribers of the channel KEYS[1] at this server. ARGV[1]: NUMSUB or SHARDNUMSUB. A
-- server that takes no writes refuses the HDEL, and so does a server of a Cluster without the
-- channel's slot. If somebody has a key of that name, it stays as it is: no hash has this field, and
-- other types are refused.
local r = redis.pcall('HDEL', KEYS[1], 'holdfast looks for a server that takes writes')
if type(r) == 'table' and not string.find(r.err, 'WRONGTYPE', 1, true) then return r end
return redis.call('PUBSUB', ARGV[1], KEYS[1])[2]
