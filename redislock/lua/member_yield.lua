-- Gives a grant to another waiter, and queues its holder again. KEYS: l, z, m, t. ARGV: id; token;
-- the other's id; the place, 0: the last; its lease in microseconds; how many tokens its grant takes
-- if it is exclusive. Answers {token, place}; or 1: gone; 2: taken.

local id, token, to, place, lease = ARGV[1], num(ARGV[2]), ARGV[3], num(ARGV[4]), num(ARGV[5])
load(KEYS[1], KEYS[2], KEYS[3], KEYS[4])
advance()
local mine, why = owned(id, token)
if mine and token ~= (st == 'X' and last or getHold(id)) then mine, why = false, 2 end -- another grant
if not mine then
  save()
  return why
end
local mode, hold, n, owner = 'x', 0, num(ARGV[6]), nil
if st == 'X' then
  local _, at = field(tail, 1)
  hold, owner = keep > 0 and keep - since or 0, sub(tail, at)
  st, used, count, limit = 'S', 0, 0, 0
else
  local _, _, k, s, m, o = getHold(id)
  mode, hold, n, owner = 's', k > 0 and k - s or 0, m, o
  dropHold(id, m)
end
dirty = true
local deadline, _, theirs, what, m, who = getPlace(to)
if deadline and deadline > now and fits(what, m) then
  grantNext(to, what, m, deadline, theirs, who)
end
if place == 0 then place = write('HINCRBY', KM, 's', 1) end
putPlace(id, now + lease, now, hold, mode, n, owner, fmt('%.0f', place))
line = true
advance()
save()
return {token, place}
