-- The table of one name, shared by the scripts. See layout.go for the keys and records.
--
-- A script calls load for a name, then advance (which lets time pass), does what it was
-- asked, and calls save; after that it does not look at the name's keys any more. Nothing is
-- written if nothing changed.

local call, sub, num, fmt, floor, max = redis.call, string.sub, tonumber, string.format, math.floor, math.max
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local KL, KZ, KM, KT                    -- the keys of the name at hand
local st, line, last, fresh, dirty      -- state, somebody waits, last token, l was missing, l must be written
local exp, keep, since, tail            -- X: the one hold
local used, count, limit                -- S, P: the group (of permits or readers); L: count
local reach                             -- the latest time that what was written here must outlast
local guarded                           -- z and m have a member that keeps them

-- One zset serves three purposes, in bands of scores that do not meet: the ends of holds
-- (microseconds - SHIFT: negative), the line (1, 2, 3... up to LINE), the deadlines of places
-- (microseconds: above LINE).
local SHIFT = 9007199254740992

-- guard keeps z and m from vanishing with their last members until save. While a slot of a
-- Cluster is on its way to another server, the script would fail in its middle on the first look
-- at a key that is not there: a lock handed over, and nothing written.
local function guard()
  if CLUSTER then
    call('ZADD', KZ, '+inf', '!')
    call('HSET', KM, '!', '')
    guarded = true
  end
end

local function load(l, z, m, t)
  KL, KZ, KM, KT = l, z, m, t
  local v = call('GET', l)
  dirty, fresh, reach, used, count, limit = false, not v, 0, 0, 0, 0
  if not v then
    st, line, last = 'F', false, 0
    return
  end
  st, line, last = sub(v, 1, 1), sub(v, 2, 2) == '1', num(sub(v, 3, 18))
  if st == 'X' then
    exp, keep, since, tail = sub(v, 19, 34) + sub(v, 35, 50), num(sub(v, 51, 66)), num(sub(v, 67, 82)), sub(v, 83)
    if keep > 0 then keep = since + keep end
  elseif st == 'S' or st == 'P' then
    used, count, limit = num(sub(v, 19, 28)), num(sub(v, 29, 38)), num(sub(v, 39, 48))
    if count > 0 and call('EXISTS', z, m) < 2 then -- evicted or deleted by hand
      call('DEL', z, m)
      used, count, line, dirty = 0, 0, false, true
    end
  elseif st == 'L' then
    count = num(sub(v, 19, 34))
  end
  if line or count > 0 or st == 'L' then guard() end
end

-- extend makes a key live ms longer, but never shorter than it would have.
local function extend(key, ms)
  if call('PTTL', key) < ms then call('PEXPIRE', key, ms) end
end

local function put()
  local v = st .. (line and '1' or '0') .. fmt('%016.0f', last)
  local stay = reach
  if st == 'X' then
    v = v .. fmt('%016.0f%016d%016.0f%016.0f', exp, 0, max(keep - since, 0), since) .. tail
    stay = max(stay, exp, keep)
  elseif st == 'S' or st == 'P' then
    v = v .. fmt('%010.0f%010.0f%010.0f', used, count, limit)
  elseif st == 'L' then
    v = v .. fmt('%016.0f', count)
    stay = now + LATCH
  end
  local ms = floor(max(stay - now, 0) / 1000) + RETAIN
  if line or st == 'S' or st == 'P' or st == 'L' then
    local left = call('PTTL', KL) -- others may rely on it for longer than this script knows
    ms = left >= ms and left or ms + RETAIN -- more than is needed, so that it is not needed often
    if reach > 0 or st == 'L' then
      extend(KZ, ms)
      extend(KM, ms)
    end
  end
  call('SET', KL, v, 'PX', fmt('%.0f', ms))
end

local function save()
  if dirty then put() end
  if guarded then
    call('ZREM', KZ, '!')
    call('HDEL', KM, '!')
  end
  dirty, guarded = false, false
end

-- forget removes z and m. Neither is looked at again.
local function forget()
  call('DEL', KZ, KM)
  guarded = false
end

-- mint returns the next token. The floor of the shard (the highest granule of time that a
-- token came from, and when that was noted) keeps the tokens of a name growing after its
-- own record has run out, although the clock was set back since.
local function mint()
  local token = num(agreed(max(now, last + 1), now))
  local g = floor(token / GRANULE)
  if fresh or g > floor(last / GRANULE) then
    local f, at = 0, 0
    local v = call('GET', KT)
    if v then f, at = num(sub(v, 1, 16)), num(sub(v, 17, 32)) end
    if g > f then
      call('SET', KT, fmt('%016.0f%016.0f', g, now))
    elseif fresh then
      if now < at or now - at >= 2 * GRANULE then -- the clock was set back
        f = f + 1
        call('SET', KT, fmt('%016.0f%016.0f', f, now))
      end
      token = max(token, f * GRANULE)
    end
  end
  fresh, dirty, last = false, true, token
  return token
end

local function len2(s)
  return fmt('%02d', #s) .. s
end

-- field reads a string that is preceded by its length in two digits.
local function field(s, from)
  local n = num(sub(s, from, from + 1))
  return sub(s, from + 2, from + 1 + n), from + 2 + n
end

-- putHold writes a hold of a group. owner is its session and info.
local function putHold(id, token, e, k, s, n, owner)
  call('HSET', KM, 'h' .. id, fmt('%016.0f%016.0f%016.0f%016.0f%010.0f', token, e, k, s, n) .. owner)
  call('ZADD', KZ, fmt('%.0f', (e > now and e or k) - SHIFT), 'h' .. id)
  reach = max(reach, e, k)
end

-- getHold returns token, lease end, keep time, since, n, owner of a group's hold.
local function getHold(id)
  local r = call('HGET', KM, 'h' .. id)
  if not r then return end
  return num(sub(r, 1, 16)), num(sub(r, 17, 32)), num(sub(r, 33, 48)), num(sub(r, 49, 64)), num(sub(r, 65, 74)), sub(r, 75)
end

local function dropHold(id, n)
  call('HDEL', KM, 'h' .. id)
  call('ZREM', KZ, 'h' .. id)
  used, count, dirty = used - n, count - 1, true
end

local function putPlace(id, deadline, joined, hold, mode, n, owner)
  call('HSET', KM, 'w' .. id, fmt('%016.0f%016.0f%016.0f', deadline, joined, hold) .. mode .. fmt('%010.0f', n) .. owner)
  call('ZADD', KZ, fmt('%.0f', deadline), 'w' .. id)
  reach = max(reach, deadline)
end

-- getPlace returns deadline, when it joined, minimum hold, mode, n, owner of a waiter.
local function getPlace(id)
  local r = call('HGET', KM, 'w' .. id)
  if not r then return end
  return num(sub(r, 1, 16)), num(sub(r, 17, 32)), num(sub(r, 33, 48)), sub(r, 49, 49), num(sub(r, 50, 59)), sub(r, 60)
end

local function dropPlace(id)
  call('HDEL', KM, 'w' .. id)
  call('ZREM', KZ, 'w' .. id, 'q' .. id)
end

local function head()
  local r = call('ZRANGEBYSCORE', KZ, 1, LINE, 'LIMIT', 0, 1)[1]
  return r and sub(r, 2)
end

local function waiters()
  return line and call('ZCOUNT', KZ, 1, LINE) or 0
end

local function ahead(id)
  return call('ZRANK', KZ, 'q' .. id) - count -- the holds of a group come before the line
end

local function fits(mode, n)
  if mode == 'p' then return used + n <= limit end
  if st == 'X' then return false end
  return mode == 's' or count == 0
end

-- setAside gives another name to a grant of a group that is kept after its end: its id came
-- again.
local function setAside(id)
  local t, e, k, s, n, o = getHold(id)
  if not t then return end
  call('HDEL', KM, 'h' .. id)
  call('ZREM', KZ, 'h' .. id)
  putHold(id .. '~' .. fmt('%.0f', t), t, e, k, s, n, o)
end

-- give makes id a holder of the name. owner: the session's id and its length, info.
local function give(id, mode, n, e, hold, owner)
  local token = mint()
  local k = hold > 0 and now + hold or 0
  if mode == 'x' then
    st, exp, keep, since, tail, used, count = 'X', e, k, now, len2(id) .. owner, 0, 0
  else
    setAside(id)
    st = mode == 's' and 'S' or 'P'
    used, count = used + n, count + 1
    putHold(id, token, e, k, now, n, owner)
  end
  return token
end

-- tell answers whether somebody heard it. The session's first character says where it listens; see layout.go.
local function tell(session, id, token)
  local where, message = sub(session, 1, 1), id .. ' ' .. fmt('%.0f', token) .. stamp(now)
  if where == '+' then return call('SPUBLISH', sub(KT, 1, -2) .. 's:' .. sub(session, 2), message) > 0 end
  if where == '-' then
    call('PUBLISH', sub(KT, 1, -7) .. 's:' .. sub(session, 2), message)
    return true -- PUBLISH counts those who listen at this server and not those at others
  end
  return call('PUBLISH', sub(KT, 1, -7) .. 's:' .. session, message) > 0
end

-- advance lets time pass: ends what has run out, and hands what is free to the line.
local function advance()
  if st == 'F' or st == 'L' then return end
  if st == 'X' then
    if exp <= now and keep <= now then st, dirty = 'F', true end
  elseif count > 0 then
    for _, h in ipairs(call('ZRANGEBYSCORE', KZ, '-inf', fmt('%.0f', now - SHIFT))) do
      local id = sub(h, 2)
      local token, _, k, _, n = getHold(id)
      if token and k > now then
        call('ZADD', KZ, fmt('%.0f', k - SHIFT), h)
      else
        dropHold(id, n or 0)
      end
    end
  end
  if line then
    for _, w in ipairs(call('ZRANGEBYSCORE', KZ, LINE, fmt('%.0f', now))) do
      dropPlace(sub(w, 2))
      dirty = true
    end
    while true do
      local id = head()
      if not id then
        line, dirty = false, true
        break
      end
      local deadline, _, hold, mode, n, owner = getPlace(id)
      if not mode then
        dropPlace(id)
      else
        if not fits(mode, n) then break end
        -- The lease runs from the waiter's last sign of life, so that a dead one does
        -- not hold up the line for longer than its place would have.
        dropPlace(id)
        give(id, mode, n, deadline, hold, owner)
        if not tell(field(owner, 1), id, last) then -- it is not there any more
          if mode == 'x' then st = 'F' else dropHold(id, n) end
        end
      end
    end
  end
  if not line and count == 0 and st ~= 'X' and st ~= 'F' then st, dirty = 'F', true end
end

-- retry says in how many microseconds the first hold ends; 0: none is held.
local function retry()
  if st == 'X' then return (exp > now and exp or keep) - now end
  if count == 0 then return 0 end
  return call('ZRANGE', KZ, 0, 0, 'WITHSCORES')[2] + SHIFT - now
end

-- rouse tells everybody who awaits the latch, and forgets them.
local function rouse(token)
  for _, a in ipairs(call('ZRANGE', KZ, 0, -1)) do
    if a ~= '!' then
      local session = call('HGET', KM, a)
      if session then tell(session, sub(a, 2), token) end
      call('HDEL', KM, a)
      call('ZREM', KZ, a)
    end
  end
end

-- kind says as what the name is in use.
local function kind()
  if st == 'P' then return fmt('it is a semaphore of %.0f', limit) end
  if st == 'L' then return 'it is a latch' end
  return 'it is a lock'
end

-- owned reports whether id holds the name under token; else 1 (gone) or 2 (taken).
local function owned(id, token)
  if st == 'X' then
    if exp <= now then return false, 1 end
    if same(last, token) and field(tail, 1) == id then return true end
    return false, last > token and 2 or 1
  end
  if st ~= 'S' and st ~= 'P' then return false, 1 end
  local t, e = getHold(id)
  if t and same(t, token) and e > now then return true end
  if last > token then
    for i = 0, count - 1 do -- mostly the first is one; there may be thousands
      local _, e2 = getHold(sub(call('ZRANGE', KZ, i, i)[1], 2))
      if e2 > now then return false, 2 end
    end
  end
  return false, 1
end
