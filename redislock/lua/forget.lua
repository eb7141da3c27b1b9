-- Takes names out of the index that the store knows nothing of any more. KEYS: i, then the
-- l of each. ARGV: the names. Answers how many that were.

local gone = 0
for n = 1, #ARGV do
  if redis.call('EXISTS', KEYS[n + 1]) == 0 then
    local r = redis.pcall('ZREM', KEYS[1], ARGV[n])
    if type(r) == 'number' then
      gone = gone + r
    elseif not string.find(r.err, 'WRONGTYPE', 1, true) then -- what is no index has no names
      return r
    end
  end
end
return gone
