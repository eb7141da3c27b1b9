-- Gives a grant the token that the quorum agreed on. KEYS: l, z, m, t. ARGV: id; its token here;
-- the new token; the lease in microseconds if the grant is to be renewed, else 0. Answers {the token
-- that it has now, the clock}; or 1: gone; 2: taken.
--
-- A server uses each token once. So the new one is larger than all before, or it is the one that
-- the grant has. If another grant here has a larger one, the answer is larger still.

local id, token, to, lease = ARGV[1], num(ARGV[2]), num(ARGV[3]), num(ARGV[4])
load(KEYS[1], KEYS[2], KEYS[3], KEYS[4])
advance()
local mine, why = owned(id, token)
if not mine then
  save()
  return why
end
local has, before = last, last
if st ~= 'X' then has = getHold(id) end
if to > has then
  to = max(to, last + 1)
  last, dirty = to, true
  local g = floor(to / GRANULE)
  if g > floor(before / GRANULE) then
    if g > floorOf() then setFloor(g) end
  end
else
  to = has -- a repeated request
end
-- A renewal makes no lease end earlier: this one may arrive after a longer one.
local till = lease > 0 and now + lease or 0
if st == 'X' then
  exp, dirty = max(exp, till), dirty or lease > 0
else
  local _, e, k, s, n, o = getHold(id)
  unsettle()
  putHold(id, to, max(e, till), k, s, n, o)
  dirty = true
end
save()
return {to, now}
