-- Lists names of the index in byte order. KEYS: i. ARGV: from, to (as for ZRANGEBYLEX), how many.

local names = redis.pcall('ZRANGEBYLEX', KEYS[1], ARGV[1], ARGV[2], 'LIMIT', 0, ARGV[3])
if names.err and string.find(names.err, 'WRONGTYPE', 1, true) then
  names.err = 'DAMAGED ' .. KEYS[1] .. ': it is not an index of names'
end
return names
