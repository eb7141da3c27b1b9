-- Removes names without a record from the index. KEYS: i, then the l of each. ARGV: the names.
-- Answers how many were removed.

local gone = 0
for n = 1, #ARGV do
  if redis.call('EXISTS', KEYS[n + 1]) == 0 then
    local r = redis.pcall('ZREM', KEYS[1], ARGV[n])
    if type(r) == 'number' then
      gone = gone + r
    elseif not string.find(r.err, 'WRONGTYPE', 1, true) then -- a damaged index has no names
      return r
    end
  end
end
return gone
