-- Takes a request out of the queue, and gives back its grant. KEYS: l, z, m, t. ARGV[1]: id.

local id = ARGV[1]
needed = true
load(KEYS[1], KEYS[2], KEYS[3], KEYS[4])
if st == 'L' then
  guard()
  if write('HDEL', KM, 'a' .. id) == 1 then write('ZREM', KZ, 'a' .. id) end
  save()
  return 0
end
if line and (getPlace(id) or ahead(id)) then dropPlace(id) end
if st == 'X' then
  if exp > now and field(tail, 1) == id then
    st, dirty = 'F', true
    settle()
  end
elseif count > 0 then
  local t, e, _, _, n = grantOf(id)
  if t and e > now then dropHold(id, n) end
end
if line and st == 'F' then st = 'S' end -- an empty group: advance then looks at the queue
advance()
save()
return 0
