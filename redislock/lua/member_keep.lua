-- Lengthens the minimum hold of a grant. KEYS: l, z, m, t. ARGV: id; its token here, and the largest
-- that it may have; how long from now the name shall stay taken, at least, in microseconds. Answers 0:
-- done; 1: gone; 2: taken.

local id, token, upto, till = ARGV[1], num(ARGV[2]), num(ARGV[3]), num(ARGV[4])
load(KEYS[1], KEYS[2], KEYS[3], KEYS[4])
advance()
local mine, why = owned(id, token)
local has = last
if mine and st ~= 'X' then has = getHold(id) end
if not mine or has > upto then
  save()
  return why or 1
end
till = now + till
if st == 'X' then
  keep, dirty = max(keep, till), true
else
  local t, e, k, s, n, o = getHold(id)
  unsettle()
  putHold(id, t, e, max(k, till), s, n, o)
  dirty = true
end
save()
return 0
