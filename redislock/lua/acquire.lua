-- Asks once for a name. KEYS: l, z, m, t, i. ARGV[1]: mode (x, s, p), wait (0, 1; 2, 3: the same, and a
-- grant that is given at once calls its session back), lease and minimum
-- hold in microseconds (16 digits each), n (of x: how many tokens the grant may take), limit (10 digits
-- each), the session's TTL in microseconds (16 digits), which is the longest lease. ARGV[2]: the id with its
-- length, the session's id with its length, info. ARGV[3]: how many milliseconds the key lives if
-- it is granted.
--
-- Answers one of: -1: the request wants the limit that is set, and none is set; the token; {token, two
-- names of the index} for a name that is new here; a text: what the name is in use as; {0, retry,
-- ahead, last token, one holder}; {0, ahead, now, state}, which says the same about a mutex.

local mode, how, ttl, hold = sub(a, 1, 1), num(sub(a, 2, 2)), num(sub(a, 3, 18)), num(sub(a, 19, 34))
local wait, calls = how % 2 == 1, how >= 2
local n, max_ = num(sub(a, 35, 44)), num(sub(a, 45, 54))
local id, at = field(ARGV[2], 1)
local owner = sub(ARGV[2], at)
local longest = num(sub(a, 55, 70))
propose(sub(a, 71, 86))

-- extended returns when a lease that would end at e ends now that it is renewed; see rule.extended.
local function extended(e) return max(now + ttl, math.min(e, now + longest)) end

-- ownerOf returns the owner of a grant, with a mark if its session wants to be called back.
local function ownerOf()
  if not calls or mode ~= 'x' then return owner end
  local session, p = field(owner, 1)
  return len2('!' .. session) .. sub(owner, p)
end

load(KEYS[1], KEYS[2], KEYS[3], KEYS[4], v)
if fresh and call('EXISTS', KZ, KM) > 0 then write('DEL', KZ, KM) end -- left over from an eviction or a deletion
advance()

-- It has the grant already: the answer was lost, or the client confirms a hand-over.
if st == 'X' then
  if field(tail, 1) == id then
    if exp > now then
      exp, dirty = extended(exp), true
      save()
      return last
    end
    if mode == 'x' and regains(exp) then
      local s, k = since, keep
      local token = give(id, mode, n, now + ttl, hold, ownerOf())
      if k >= keep then since, keep = s, k end
      save()
      return token
    end
  end
elseif count > 0 then
  local t, e, k, s, m, o = grantOf(id)
  if t and e > now then
    putHold(id, t, extended(e), k, s, m, o)
    dirty = true
    save()
    return t
  end
end

local joined = false
if line then
  local d, s, h, m, c, o = getPlace(id)
  if d and ahead(id) then
    putPlace(id, extended(d), s, h, m, c, o)
    joined, dirty = true, true
  end
end

if not joined then
  local other = conflict(mode, n, max_)
  if other then
    save()
    return other
  end
  if mode == 'p' and max_ == 0 and (st == 'F' or st == 'P' and not set) then
    save()
    return -1
  end
  if st ~= 'F' then
    local same = mode == 'p' and st == 'P' and (limit == max_ or max_ == 0 and set) or mode ~= 'p' and (st == 'X' or st == 'S')
    if not same then
      save()
      return kind()
    end
  end
  if max_ > 0 then limit = max_ end
  if not line and fits(mode, n) then
    local new = fresh
    local token = give(id, mode, n, now + ttl, hold, ownerOf())
    if new then enlist() end
    save()
    if not new or not INDEX then return token end
    return {token, unpack(redis.pcall('ZRANDMEMBER', KEYS[5], 2))}
  end
  if wait then
    putPlace(id, now + ttl, now, hold, mode, n, owner, write('HINCRBY', KM, 's', 1))
    line, joined, dirty = true, true, true
    if st == 'F' then st = mode == 'p' and 'P' or 'S' end -- the other library's holder is in the way
  end
end
if joined then callBack() end
local r = {0, retry(), joined and ahead(id) or waiters(), last}
if st == 'X' then
  local hid, p = field(tail, 1)
  local _, q = field(tail, p)
  r[5] = {hid, 'x', 1, last, now - since, retry(), exp <= now and 1 or 0, sub(tail, q)}
elseif count > 0 then
  local hid = sub(call('ZRANGE', KZ, 0, 0)[1], 2)
  local t, e, k, s, m, o = getHold(hid, true)
  local _, q = field(o, 1)
  r[5] = {hid, st, m, t, now - s, firstEnd(), e <= now and 1 or 0, sub(o, q)}
else
  r[5] = others(1)[1]
end
r[#r + 1] = place(joined and id)
save()
return r
