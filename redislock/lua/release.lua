-- Ends a grant. KEYS: l, z, m, t. ARGV[1]: token, keep in microseconds (16 digits each). ARGV[2]:
-- the id with its length. Answers 0: done; 1: gone; 2: taken.

local token, asked, id = num(sub(a, 1, 16)), num(sub(a, 17, 32)), field(ARGV[2], 1)
propose(sub(a, 33, 48))
needed = true
load(KEYS[1], KEYS[2], KEYS[3], KEYS[4], v)
advance()
local mine, why = owned(id, token)
if not mine then
  save()
  return why
end
local stays
if st == 'X' then
  exp, keep, dirty = 0, max(keep, asked > 0 and now + asked or 0), true
  stays = keep > now
else
  local _, _, k, s, n, o = getHold(id)
  k = max(k, asked > 0 and now + asked or 0)
  stays = k > now
  if stays then
    putHold(id, token, 0, k, s, n, o)
    dirty = true
  else
    dropHold(id, n)
  end
end
advance()
if stays and line then -- the first waiter must learn when to ask again
  local first = head()
  local _, _, _, _, _, o = getPlace(first)
  notify(field(o, 1), first, 0)
end
save()
return 0
