-- Keeps waiters in the other library's queue. KEYS: l, z, m, t. ARGV: their ids. Answers the positions
-- (from 1) of those that it does not have.

needed = true
load(KEYS[1], KEYS[2], KEYS[3], KEYS[4])
advance() -- also, the other library announces to nobody that a client has left its queue
local lost = {}
for i, id in ipairs(ARGV) do
  if not beat(id) then lost[#lost + 1] = i end
end
save()
return lost
