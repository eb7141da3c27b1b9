-- Fast path of release.lua for one or a few mutexes without waiters and minimum hold. The caller
-- renewed them lately. KEYS: the l of each. ARGV, two for each: the token (16 digits); the id with
-- its length. Answers for each 0: done; 3: release.lua must decide.

local answers = {}
for i, l in ipairs(KEYS) do
  local v, answer = redis.pcall('GET', l), 3 -- a key that is not a string must not fail the others
  if type(v) == 'string' and string.sub(v, 1, 18) == 'X0' .. ARGV[2 * i - 1]
    and string.find(v, '0000000000000000', 51, true) == 51 and string.find(v, ARGV[2 * i], 83, true) == 83 then
    -- The rest of the record stays: of a free name only the token counts. The key lives on as long
    -- as the lease and the retention.
    if redis.pcall('SETRANGE', l, 0, 'F') == #v then answer = 0 end -- else refused; see release.lua
  end
  answers[i] = answer
end
return #KEYS == 1 and answers[1] or answers
