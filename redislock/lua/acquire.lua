-- Asks once for a name. KEYS: l, z, m, t, i. ARGV[1]: mode (x, s, p), wait (0, 1), TTL and
-- minimum hold in microseconds (16 digits each), n, limit (10 digits each). ARGV[2]: the
-- id with its length, the session's id with its length, info. ARGV[3]: how many
-- milliseconds the key has to live if it is granted.
--
-- Answers the token; or {token, two names of the index} for a name that is new here; or a
-- text: in use as that; or {0, retry, ahead, last token, one holder}; or {0, ahead, now,
-- state}, which says the same of a mutex.

local a, v = ARGV[1], redis.call('GET', KEYS[1])
if v and string.byte(v) == 88 and string.sub(a, 1, 2) == 'x1' then -- X
  -- A mutex that somebody holds, and a new waiter: it joins the line.
  local call, sub = redis.call, string.sub
  local t, n = redis.call('TIME'), tonumber(string.sub(ARGV[2], 1, 2))
  local now, id = t[1] * 1000000 + t[2], sub(ARGV[2], 3, n + 2)
  local lives = sub(a, 3, 18) / 1000 + RETAIN / 2
  local l, z = call('PTTL', KEYS[1]), call('PTTL', KEYS[2])
  if sub(v, 19, 34) + sub(v, 35, 50) > now and l >= lives and (z >= lives or z == -2)
    and string.find(v, sub(ARGV[2], 1, n + 2), 83, true) ~= 83
    and (z == -2 or call('ZCOUNT', KEYS[2], 1000000000000, now) == 0) then -- nobody in line is dead
    local deadline = string.format('%.0f', now + sub(a, 3, 18))
    -- The record is as putPlace writes it.
    if call('HSETNX', KEYS[3], 'w' .. id, deadline .. string.format('%016.0f', now) .. sub(a, 19, 34)
      .. 'x' .. sub(a, 35, 44) .. sub(ARGV[2], n + 3)) == 1 then
      call('ZADD', KEYS[2], call('HINCRBY', KEYS[3], 's', 1), 'q' .. id, deadline, 'w' .. id)
      if z == -2 then
        call('PEXPIRE', KEYS[2], l)
        call('PEXPIRE', KEYS[3], l)
      end
      if string.byte(v, 2) == 48 then call('SETRANGE', KEYS[1], 1, '1') end
      return {0, call('ZCARD', KEYS[2]) / 2 - 1, now, v --[[HEAD]]}
    end
  end
end

--COMMON

local mode, wait, ttl, hold = sub(a, 1, 1), sub(a, 2, 2) == '1', num(sub(a, 3, 18)), num(sub(a, 19, 34))
local n, max_ = num(sub(a, 35, 44)), num(sub(a, 45, 54))
local id, at = field(ARGV[2], 1)
local owner = sub(ARGV[2], at)
--ACQUIRE

load(KEYS[1], KEYS[2], KEYS[3], KEYS[4])
if fresh and call('EXISTS', KZ, KM) > 0 then call('DEL', KZ, KM) end -- left by an eviction or a deletion
advance()

-- Holds it already: the answer was lost, or a hand-over is being confirmed.
if st == 'X' then
  if exp > now and field(tail, 1) == id then
    exp, dirty = now + ttl, true
    save()
    return last
  end
elseif count > 0 then
  local t, e, k, s, m, o = getHold(id)
  if t and e > now then
    putHold(id, t, now + ttl, k, s, m, o)
    dirty = true
    save()
    return t
  end
end

local joined = false
if line then
  local d, s, h, m, c, o = getPlace(id)
  if d then
    putPlace(id, now + ttl, s, h, m, c, o)
    joined, dirty = true, true
  end
end

if not joined then
  if st ~= 'F' then
    local same = mode == 'p' and st == 'P' and limit == max_ or mode ~= 'p' and (st == 'X' or st == 'S')
    if not same then
      save()
      return kind()
    end
  end
  limit = max_
  if not line and fits(mode, n) then
    local new = fresh
    local token = give(id, mode, n, now + ttl, hold, owner)
    save()
    if not new then return token end
    call('ZADD', KEYS[5], 0, sub(KEYS[1], #KEYS[5] + 2))
    return {token, unpack(call('ZRANDMEMBER', KEYS[5], 2))}
  end
  if wait then
    call('ZADD', KZ, call('HINCRBY', KM, 's', 1), 'q' .. id)
    putPlace(id, now + ttl, now, hold, mode, n, owner)
    line, joined, dirty = true, true, true
  end
end
local r = {0, retry(), joined and ahead(id) or waiters(), last}
if st == 'X' then
  local hid, p = field(tail, 1)
  local _, q = field(tail, p)
  r[5] = {hid, 'x', 1, last, now - since, retry(), exp <= now and 1 or 0, sub(tail, q)}
elseif count > 0 then
  local hid = sub(call('ZRANGE', KZ, 0, 0)[1], 2)
  local t, e, k, s, m, o = getHold(hid)
  local _, q = field(o, 1)
  r[5] = {hid, st, m, t, now - s, retry(), e <= now and 1 or 0, sub(o, q)}
end
--PLACE
save()
return r
