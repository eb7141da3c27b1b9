-- Changes a grant, or a semaphore. KEYS: l, z, m, t; for limit also i. ARGV[1]: what. Answers 0: done;
-- 1: gone; 2: taken; 3: the new id belongs to another request; 4: the minimum hold is not over; a
-- text: what the name is in use as.
--   downgrade id token
--   reduce    id token n: how many permits remain
--   adopt     id token TTL session, new id, info. Answers 0, or minus the microseconds that are left of
--             the minimum hold.
--   break     token
--   remove    a latch
--   limit     n: it stays; 0: it stays as long as the name is in use
--   confirm   id token   changes nothing

local what = ARGV[1]
needed = true
load(KEYS[1], KEYS[2], KEYS[3], KEYS[4])
advance()

local function done(result)
  save()
  return result
end

if what == 'limit' then
  local n = num(ARGV[2])
  if st ~= 'F' and st ~= 'P' then return done(kind()) end
  local other = limitTo(n)
  if other then return done(other) end
  if n == 0 and not set then return done(1) end
  if n > 0 then
    if st == 'F' then
      forget() -- left over from an eviction or a deletion; also the first write, which needs no memory
      st, used, count = 'P', 0, 0
    end
    if fresh then enlist() end
    limit = n
  end
  set = n > 0
  put() -- before more is granted than the old limit allows
  advance()
  return done(0)
end

if what == 'break' then
  local token = num(ARGV[2])
  local found = false
  if st == 'X' then
    found = last == token
    if found then
      exp, keep, dirty = 0, 0, true
    end
  elseif st ~= 'L' and count > 0 then
    for _, h in ipairs(call('ZRANGEBYSCORE', KZ, '-inf', 0)) do
      local t, _, _, _, n = getHold(sub(h, 2), true)
      if t == token then
        found = true
        dropHold(sub(h, 2), n)
        break
      end
    end
  end
  found = found or breakOther(token)
  if found then advance() end
  return done(found and 0 or 1)
end

if what == 'remove' then
  if st == 'F' then return done(1) end
  if st ~= 'L' then return done(kind()) end
  write('SETRANGE', KL, 0, 'F2') -- z and m will be removed; see unsettle
  notifyAll(0)
  forget()
  removeLatch()
  st, count, dirty = 'F', 0, true
  advance()
  return done(0)
end

local id, token = ARGV[2], num(ARGV[3])
local mine, why = owned(id, token)
if what == 'adopt' then
  local till, session, new = now + num(ARGV[4]), len2(ARGV[5]), ARGV[6]
  if not mine then
    if not owned(new, token) then return done(why) end
    id = new -- it has been adopted
  end
  if new ~= id then
    local _, e
    if st ~= 'X' then _, e = getHold(new) end
    if e and e > now or line and getPlace(new) then return done(3) end
  end
  dirty = true
  local keptTill = keep
  if st == 'X' then
    exp, tail = till, len2(new) .. session .. ARGV[7]
  else
    local t, _, k, s, n = getHold(id)
    removeHold(id)
    setAside(new)
    putHold(new, t, till, k, s, n, session .. ARGV[7])
    keptTill = k
  end
  return done(math.min(now - keptTill, 0))
end

if not mine then return done(why) end

dirty = true -- also without a change: WAIT needs a write to refer to
if what == 'confirm' then return done(0) end
if what == 'reduce' then
  if st ~= 'P' then return done(kind()) end
  local t, e, k, s, n, owner = getHold(id)
  local left = num(ARGV[4])
  if n <= left then return done(0) end -- done before; see rule.Reduce
  if k > now then return done(4) end
  unsettle()
  putHold(id, t, e, k, s, left, owner)
  used = used - (n - left)
  advance()
  return done(0)
end
if st == 'P' then return done(kind()) end
if st == 'X' then
  local _, p = field(tail, 1)
  unsettle()
  st, used, count, limit, dirty = 'S', 1, 1, 0, true
  putHold(id, token, exp, keep, since, 1, sub(tail, p))
  advance()
end
return done(0)
