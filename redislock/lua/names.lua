-- Names of the index in byte order. KEYS: i. ARGV: from, to (as for ZRANGEBYLEX), how many.

return redis.call('ZRANGEBYLEX', KEYS[1], ARGV[1], ARGV[2], 'LIMIT', 0, ARGV[3])
