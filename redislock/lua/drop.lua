-- Fast path of release.lua for one or a few mutexes without waiters and minimum hold. The caller
-- renewed them lately. KEYS: the l of each. ARGV, two for each: the token (16 digits); the id with
-- its length. Answers for each 0: done; 3: release.lua must decide.

-- See take.lua for MGET, and for names that come twice.
local find, byte = string.find, string.byte
local values = #KEYS == 1 and {redis.pcall('GET', KEYS[1])} or redis.pcall('MGET', unpack(KEYS))
local answers, seen = {}, #KEYS > 1 and {}
for i, l in ipairs(KEYS) do
  local v, answer = values[i], 3
  if not (seen and seen[l]) and type(v) == 'string' and byte(v, 1) == 88 and byte(v, 2) == 48 -- X0
    and find(v, ARGV[2 * i - 1], 3, true) == 3
    and find(v, '0000000000000000', 51, true) == 51 and find(v, ARGV[2 * i], 83, true) == 83 then
    -- The rest of the record stays: of a free name only the token counts. The key lives on as long
    -- as the lease and the retention.
    if redis.pcall('SETRANGE', l, '0', 'F') == #v then answer = 0 end -- else refused; see release.lua
  end
  answers[i] = answer
  if seen then seen[l] = true end
end
return #KEYS == 1 and answers[1] or answers
