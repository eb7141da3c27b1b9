-- Releases a mutex that its holder has proved lately, that nobody waits for, and that need
-- not be kept. KEYS: l. ARGV[1]: the token (16 digits). ARGV[2]: the id with its length.
-- Answers 0: done; 3: it is not that simple, release.lua has to decide.

local v = redis.call('GET', KEYS[1])
if v and string.sub(v, 1, 18) == 'X0' .. ARGV[1] and string.find(v, '0000000000000000', 51, true) == 51
  and string.find(v, ARGV[2], 83, true) == 83 then
  -- The rest of the record stays: of a free name only the token counts. So does the
  -- life of the key, which is the lease's and the retention.
  redis.call('SETRANGE', KEYS[1], 0, 'F')
  return 0
end
return 3
