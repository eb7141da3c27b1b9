-- Releases mutexes that their holder has proved lately, that nobody waits for, and that
-- need not be kept: one or a few. KEYS: the l of each. ARGV, two for each: the token (16
-- digits); the id with its length. Answers, for each, 0: done; 3: it is not that simple,
-- release.lua has to decide.

local answers = {}
for i, l in ipairs(KEYS) do
  local v, answer = redis.pcall('GET', l), 3 -- a key that is not a string must not spoil the others
  if type(v) == 'string' and string.sub(v, 1, 18) == 'X0' .. ARGV[2 * i - 1]
    and string.find(v, '0000000000000000', 51, true) == 51 and string.find(v, ARGV[2 * i], 83, true) == 83 then
    -- The rest of the record stays: of a free name only the token counts. So does the
    -- life of the key, which is the lease's and the retention.
    if redis.pcall('SETRANGE', l, 0, 'F') == #v then answer = 0 end -- else it is refused; release.lua may be allowed to
  end
  answers[i] = answer
end
return #KEYS == 1 and answers[1] or answers
