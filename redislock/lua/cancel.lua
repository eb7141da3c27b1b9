-- Takes a request out of the queue, and gives back its grant. KEYS: l, z, m, t. ARGV[1]: id. ARGV[2],
-- if it is there: the largest token of a grant that this ends. Answers the token of a grant that
-- stays, or 0.

local id, most, stays = ARGV[1], ARGV[2] and num(ARGV[2]), 0
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
    if most and last > most then
      stays = last
    else
      st, dirty = 'F', true
      settle()
    end
  end
elseif count > 0 then
  local t, e, _, _, n = grantOf(id)
  if t and e > now then
    if most and t > most then stays = t else dropHold(id, n) end
  end
end
if line and st == 'F' then st = 'S' end -- an empty group: advance then looks at the queue
advance()
save()
return stays
