-- A latch. KEYS: l, z, m, t, i. ARGV[1]: what. Answers -1: no such latch; a text: what the name is
-- in use as.
--   set   n            1: created; 0: it exists
--   down  id           what is left
--   await id session TTL   1: zero; 0: not yet, and the session will be notified

local what, id = ARGV[1], ARGV[2]
load(KEYS[1], KEYS[2], KEYS[3], KEYS[4])
advance()
local other = knowLatch()
if other then
  save()
  return other
end

if what == 'set' then
  if st == 'L' then
    dirty = true -- WAIT needs a write to refer to
    save()
    return 0
  end
  if st ~= 'F' then
    save()
    return kind()
  end
  forget()
  st, count, dirty = 'L', num(ARGV[2]), true
  setLatch()
  if fresh then enlist() end
  save()
  return 1
end

if st ~= 'L' then
  save()
  return -1
end
dirty = true -- every use prolongs its life

if what == 'await' then
  if count == 0 then
    save()
    return 1
  end
  for _, a in ipairs(call('ZRANGEBYSCORE', KZ, 0, fmt('%.0f', now), 'LIMIT', 0, 100)) do
    guard()
    write('HDEL', KM, a)
    write('ZREM', KZ, a)
  end
  write('ZADD', KZ, fmt('%.0f', now + max(num(ARGV[4]), INTEREST)), 'a' .. id)
  write('HSET', KM, 'a' .. id, ARGV[3])
  save()
  return 0
end

if call('HEXISTS', KM, 'd' .. id) == 0 then
  unsettle()
  local before = count
  count = max(count - 1, 0)
  write('HSET', KM, 'd' .. id, 1, 'c', fmt('%.0f', count)) -- repair reads c
  if before > 0 then countLatch() end
  if count == 0 then notifyAll(1) end
end
save()
return count
