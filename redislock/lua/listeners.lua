-- How many listen to the channel KEYS[1] at this server, ARGV[1]: NUMSUB or SHARDNUMSUB. A server that takes no writes
-- refuses it, and one of a Cluster that has not got the channel's slot.
redis.call('DEL', KEYS[1])
return redis.call('PUBSUB', ARGV[1], KEYS[1])[2]
