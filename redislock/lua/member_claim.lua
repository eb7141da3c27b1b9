-- Asks the holders here to give way if they lack a majority. KEYS: l, z, m, t. ARGV: the claimant's
-- id, its rank, a token. Answers 1 if the claimant does not wait here.
--
-- Readers need not give way to readers. A reader that other servers have granted enters, whatever
-- is before it in the queue. Otherwise readers with some servers each could block a writer
-- everywhere, and it them.
--
-- A writer with rank 0 had a majority when it sent this. So a grant here whose lease is over had none
-- then, and ends. But one that was released under a token above the claim's may be newer. If a reader
-- has rank 0, a writer's grant becomes a reader's: its downgrade may not have arrived here.

local id, claim = ARGV[1], ' c ' .. ARGV[2] .. ' ' .. ARGV[1]
load(KEYS[1], KEYS[2], KEYS[3], KEYS[4])
advance()
local majority, above = ARGV[2] == '0', num(ARGV[3])

-- over reports whether a grant, whose lease ends at e, ends.
local function over(e, token)
  return majority and e <= now and (e > 0 or token <= above)
end

local deadline, _, hold, mode, n, owner
if line then deadline, _, hold, mode, n, owner = getPlace(id) end
if not deadline then
  save()
  return 1
end
if st == 'X' and over(exp, last) then
  local holder, at = field(tail, 1)
  unsettle()
  st, used, count, limit = 'S', 0, 0, 0
  if mode == 's' then
    used, count = 1, 1
    putHold(holder, last, exp, keep, since, 1, sub(tail, at))
  end
  grantNext(id, mode, n, deadline, hold, owner)
  advance()
elseif st == 'X' then
  local holder, at = field(tail, 1)
  publish(field(tail, at), holder .. claim)
elseif st == 'S' and mode == 's' then
  grantNext(id, mode, n, deadline, hold, owner)
  advance()
elseif st == 'S' then
  for _, h in ipairs(call('ZRANGE', KZ, 0, count - 1)) do
    local t, e, _, _, m, holder = getHold(sub(h, 2), true)
    if over(e, t) then
      dropHold(sub(h, 2), m)
    else
      publish(field(holder, 1), sub(h, 2) .. claim)
    end
  end
  advance()
end
save()
return 0
