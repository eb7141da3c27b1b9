-- Counts the subscribers of the channel KEYS[1] at this server. ARGV[1]: NUMSUB or SHARDNUMSUB. A
-- server that takes no writes refuses the DEL, and so does a server of a Cluster without the
-- channel's slot.
redis.call('DEL', KEYS[1])
return redis.call('PUBSUB', ARGV[1], KEYS[1])[2]
