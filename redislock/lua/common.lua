-- The table of one name, shared by the scripts. See layout.go for the keys and records.
--
-- A script calls load for a name, then advance (which lets time pass), does what it was
-- asked, and calls save; after that it does not look at the name's keys any more. Nothing is
-- written if nothing changed.
--
-- Redis does not undo what a script did before it failed. So (docs/adr/0010-tell-after-writing.md):
--   - Waiters are told by save, after everything has been written.
--   - A mark in l stands while z and m change. Who finds it mends the name; see unsettle.
--   - A member of z may lack its field in m, but no field of m its member in z.

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local KL, KZ, KM, KT                    -- the keys of the name at hand
local st, line, last, fresh, dirty      -- state, somebody waits, last token, l was missing, l must be written
local exp, keep, since, tail            -- X: the one hold
local used, count, limit                -- S, P: the group (of permits or readers); L: count
local reach                             -- the latest time that what was written here must outlast
local guarded                           -- z and m have a member that keeps them
local stored, marked                    -- l exists; it has the mark
local queue = {}                        -- what save tells
local wrote                             -- the script has written something
local needed                            -- it must succeed although the server's memory is full

-- One zset serves three purposes, in bands of scores that do not meet: the ends of holds
-- (microseconds - SHIFT: negative), the line (1, 2, 3... up to LINE), the deadlines of places
-- (microseconds: above LINE).
local SHIFT = 9007199254740992

-- Where the digits of a state end, at least.
local DIGITS = {F = 18, X = 84, S = 48, P = 48, L = 34}

-- damaged ends the script with an error about the name; see layout.go.
local function damaged(key, what)
  error({err = 'DAMAGED ' .. key .. ': ' .. what})
end

-- failure returns the answer that the error of a call means.
local function failure(e)
  local text = type(e) == 'table' and e.err or tostring(e)
  if string.find(text, 'WRONGTYPE', 1, true) or string.find(text, 'value is not a', 1, true) then
    text = 'DAMAGED ' .. KL .. ': a key of the name has another type or value than scripts give it'
  end
  return {err = text}
end

-- write is call for commands that write. When memory is full Redis refuses the first command of a script
-- that may need some, and none after one that needs none.
local function write(...)
  if wrote then return redis.call(...) end
  wrote = true
  local r = redis.pcall(...)
  if type(r) == 'table' and r.err then
    if not needed or not string.find(r.err, 'OOM', 1, true) then error(r) end
    redis.call('ZREM', KZ, '!')
    return redis.call(...)
  end
  return r
end

-- guard keeps z and m from vanishing with their last members until save. It is called before anything goes from
-- them. While a slot of a Cluster is on its way to another server, the script would fail in its middle on the first look
-- at a key that is not there.
local function guard()
  if CLUSTER and not guarded then
    write('ZADD', KZ, '+inf', '!')
    write('HSET', KM, '!', '')
    guarded = true
  end
end

-- unsettle marks l before z or m change in more than the times of what is there. save takes
-- the mark away.
local function unsettle()
  if marked then return end
  marked, dirty = true, true
  if stored then write('SETRANGE', KL, 1, '2') end
end

-- extend makes a key live ms longer, but never shorter than it would have.
local function extend(key, ms)
  if redis.call('PTTL', key) < ms then write('PEXPIRE', key, ms) end
end

local function put()
  local v = st .. (line and '1' or '0') .. string.format('%016.0f', last)
  local stay = reach
  if st == 'X' then
    v = v .. string.format('%016.0f%016d%016.0f%016.0f', exp, 0, math.max(keep - since, 0), since) .. tail
    stay = math.max(stay, exp, keep)
  elseif st == 'S' or st == 'P' then
    v = v .. string.format('%010.0f%010.0f%010.0f', used, count, limit)
  elseif st == 'L' then
    v = v .. string.format('%016.0f', count)
    stay = now + LATCH
  end
  local ms = math.floor(math.max(stay - now, 0) / 1000) + RETAIN
  if line or st == 'S' or st == 'P' or st == 'L' then
    local left = redis.call('PTTL', KL) -- others may rely on it for longer than this script knows
    ms = left >= ms and left or ms + RETAIN -- more than is needed, so that it is not needed often
    if reach > 0 or st == 'L' then
      extend(KZ, ms)
      extend(KM, ms)
    end
  end
  write('SET', KL, v, 'PX', string.format('%.0f', ms))
  dirty, marked = false, false
end

-- save writes the state, and then tells who has to be told.
local function save()
  if dirty then put() end
  if guarded then
    write('ZREM', KZ, '!')
    write('HDEL', KM, '!')
  end
  guarded = false
  local told = queue
  queue = {}
  for _, m in ipairs(told) do redis.call(m[1], m[2], m[3]) end
end

-- forget removes z and m. Neither is looked at again.
local function forget()
  write('DEL', KZ, KM)
  guarded = false
end

-- floorOf returns the floor of the shard's tokens and when it was noted. What is no floor counts as none, and
-- is replaced: it belongs to many names.
local function floorOf()
  local v = redis.pcall('GET', KT)
  local _, to = string.find(type(v) == 'string' and v or '', '^%d+')
  if not to or to < 32 then return 0, 0 end
  local f, at = tonumber(string.sub(v, 1, 16)), tonumber(string.sub(v, 17, 32))
  if f * GRANULE > tonumber(MAXTOKEN) then return 0, 0 end
  return f, at
end

-- mint returns the next token. The floor of the shard (the highest granule of time that a
-- token came from, and when that was noted) keeps the tokens of a name growing after its
-- own record has run out, although the clock was set back since.
local function mint()
  local token = tonumber(agreed(math.max(now, last + 1), now))
  local g = math.floor(token / GRANULE)
  if fresh or g > math.floor(last / GRANULE) then
    local f, at = floorOf()
    if g > f then
      write('SET', KT, string.format('%016.0f%016.0f', g, now))
    elseif fresh then
      if now < at or now - at >= 2 * GRANULE then -- the clock was set back
        f = f + 1
        write('SET', KT, string.format('%016.0f%016.0f', f, now))
      end
      token = math.max(token, f * GRANULE)
    end
  end
  if token > tonumber(MAXTOKEN) then damaged(KL, 'no token is larger than its last one') end
  fresh, dirty, last = false, true, token
  return token
end

local function len2(s)
  return string.format('%02d', #s) .. s
end

-- field reads a string that is preceded by its length in two digits.
local function field(s, from)
  local n = tonumber(string.sub(s, from, from + 1))
  if not n or #s < from + 1 + n then damaged(KL, 'a record of the name is cut short') end
  return string.sub(s, from + 2, from + 1 + n), from + 2 + n
end

-- putHold writes a hold of a group. owner is its session and info.
local function putHold(id, token, e, k, s, n, owner)
  write('ZADD', KZ, string.format('%.0f', (e > now and e or k) - SHIFT), 'h' .. id)
  write('HSET', KM, 'h' .. id, string.format('%016.0f%016.0f%016.0f%016.0f%010.0f', token, e, k, s, n) .. owner)
  reach = math.max(reach, e, k)
end

-- getHold returns token, lease end, keep time, since, n, owner of a group's hold. must says that z has it.
local function getHold(id, must)
  local r = redis.call('HGET', KM, 'h' .. id)
  if not r then
    if must then damaged(KM, 'the record of a grant is missing') end
    return
  end
  local _, to = string.find(r, '^%d+')
  if not to or to < 76 or string.sub(r, 1, 16) > MAXTOKEN then damaged(KM, 'the record of a grant is none') end
  return tonumber(string.sub(r, 1, 16)), tonumber(string.sub(r, 17, 32)), tonumber(string.sub(r, 33, 48)), tonumber(string.sub(r, 49, 64)), tonumber(string.sub(r, 65, 74)), string.sub(r, 75)
end

local function removeHold(id)
  guard()
  unsettle()
  write('HDEL', KM, 'h' .. id)
  write('ZREM', KZ, 'h' .. id)
end

local function dropHold(id, n)
  removeHold(id)
  used, count, dirty = used - n, count - 1, true
end

-- putPlace writes a place. number is its place in line, for a new one.
local function putPlace(id, deadline, joined, hold, mode, n, owner, number)
  local till = string.format('%.0f', deadline)
  if number then
    unsettle()
    write('ZADD', KZ, number, 'q' .. id, till, 'w' .. id)
  else
    write('ZADD', KZ, till, 'w' .. id)
  end
  write('HSET', KM, 'w' .. id, string.format('%016.0f%016.0f%016.0f', deadline, joined, hold) .. mode .. string.format('%010.0f', n) .. owner)
  reach = math.max(reach, deadline)
end

-- getPlace returns deadline, when it joined, minimum hold, mode, n, owner of a waiter.
local function getPlace(id)
  local r = redis.call('HGET', KM, 'w' .. id)
  if not r then return end
  local _, to = string.find(r, '^%d+')
  local _, n = string.find(r, '^[xsp]%d+', 49)
  if to ~= 48 or not n or n < 61 then damaged(KM, 'the record of a waiter is none') end
  return tonumber(string.sub(r, 1, 16)), tonumber(string.sub(r, 17, 32)), tonumber(string.sub(r, 33, 48)), string.sub(r, 49, 49), tonumber(string.sub(r, 50, 59)), string.sub(r, 60)
end

local function dropPlace(id)
  guard()
  unsettle()
  write('HDEL', KM, 'w' .. id)
  write('ZREM', KZ, 'w' .. id, 'q' .. id)
end

-- mend makes z and m agree with each other and with the state, after a script failed in its middle, or somebody
-- else has removed something.
local function mend()
  dirty = true
  if st == 'L' then
    local c = tonumber(redis.call('HGET', KM, 'c') or '') -- what the last one to count down left
    if c and c < count then count = c end
    return
  end
  used, count, line = 0, 0, false
  if st == 'F' or redis.call('EXISTS', KZ, KM) < 2 then
    forget()
    return
  end
  for _, e in ipairs(redis.call('ZRANGE', KZ, 0, -1)) do
    local what, id = string.sub(e, 1, 1), string.sub(e, 2)
    if what == 'h' then
      local t, _, _, _, n = getHold(id)
      if t and st ~= 'X' then
        used, count, last = used + n, count + 1, math.max(last, t)
      else
        removeHold(id)
      end
    elseif what == 'q' then
      if getPlace(id) then line = true else dropPlace(id) end
    end
  end
end

local function load(l, z, m, t)
  KL, KZ, KM, KT = l, z, m, t
  local v = redis.call('GET', l)
  dirty, fresh, stored, marked, reach, used, count, limit = false, not v, v, false, 0, 0, 0, 0
  if not v then
    st, line, last = 'F', false, 0
    return
  end
  local _, to = string.find(v, '^[FXSPL][012]%d+')
  st = string.sub(v, 1, 1)
  if not to or to < DIGITS[st] or string.sub(v, 3, 18) > MAXTOKEN then damaged(l, 'it is not the state of a name') end
  line, marked, last = string.sub(v, 2, 2) == '1', string.sub(v, 2, 2) == '2', tonumber(string.sub(v, 3, 18))
  if st == 'X' then
    exp, keep, since, tail = string.sub(v, 19, 34) + string.sub(v, 35, 50), tonumber(string.sub(v, 51, 66)), tonumber(string.sub(v, 67, 82)), string.sub(v, 83)
    if keep > 0 then keep = since + keep end
  elseif st == 'S' or st == 'P' then
    used, count, limit = tonumber(string.sub(v, 19, 28)), tonumber(string.sub(v, 29, 38)), tonumber(string.sub(v, 39, 48))
  elseif st == 'L' then
    count = tonumber(string.sub(v, 19, 34))
  end
  if marked or st ~= 'L' and (line or count > 0)
    and (redis.call('EXISTS', z, m) < 2 or count > 0 and redis.call('ZCOUNT', z, '-inf', 0) ~= count) then
    mend()
  end
end

local function head()
  local r = redis.call('ZRANGEBYSCORE', KZ, 1, LINE, 'LIMIT', 0, 1)[1]
  return r and string.sub(r, 2)
end

local function waiters()
  return line and redis.call('ZCOUNT', KZ, 1, LINE) or 0
end

-- ahead returns how many wait before id, or nothing if z does not have its place.
local function ahead(id)
  local rank = redis.call('ZRANK', KZ, 'q' .. id)
  return rank and rank - count -- the holds of a group come before the line
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
  removeHold(id)
  putHold(id .. '~' .. string.format('%.0f', t), t, e, k, s, n, o)
end

-- give makes id a holder of the name. owner: the session's id and its length, info.
local function give(id, mode, n, e, hold, owner)
  local token = mint()
  local k = hold > 0 and now + hold or 0
  if mode == 'x' then
    st, exp, keep, since, tail, used, count = 'X', e, k, now, len2(id) .. owner, 0, 0
  else
    unsettle()
    setAside(id)
    st = mode == 's' and 'S' or 'P'
    used, count = used + n, count + 1
    putHold(id, token, e, k, now, n, owner)
  end
  return token
end

-- channel returns where a session listens, and how to publish there. The session's first character says
-- which kind of channel it is; see layout.go.
local function channel(session)
  local kind = string.sub(session, 1, 1)
  if kind == '+' then return string.sub(KT, 1, -2) .. 's:' .. string.sub(session, 2), 'SPUBLISH', 'SHARDNUMSUB' end
  if kind == '-' then return string.sub(KT, 1, -7) .. 's:' .. string.sub(session, 2), 'PUBLISH' end
  return string.sub(KT, 1, -7) .. 's:' .. session, 'PUBLISH', 'NUMSUB'
end

-- hears reports whether a session listens at this server. Those at its replicas do not count, nor do patterns. In a
-- Cluster without sharded channels nobody knows.
local function hears(session)
  local to, _, count_ = channel(session)
  return not count_ or redis.call('PUBSUB', count_, to)[2] > 0
end

-- publish has save send a message.
local function publish(session, message)
  local to, how = channel(session)
  queue[#queue + 1] = {how, to, message}
end

-- tell has save tell a waiter.
local function tell(session, id, token)
  publish(session, id .. ' ' .. string.format('%.0f', token) .. stamp(now))
end

-- grantNext gives the name to a waiter that leaves the line, if its session listens. The lease runs from the waiter's
-- last sign of life, so that a dead one does not hold up the line for longer than its place would have.
local function grantNext(id, mode, n, deadline, hold, owner)
  local session = field(owner, 1)
  local there = hears(session)
  dropPlace(id)
  if there then
    tell(session, id, give(id, mode, n, deadline, hold, owner))
  else
    mint() -- each turn has a token
  end
end

-- advance lets time pass: ends what has run out, and hands what is free to the line.
local function advance()
  if st == 'F' or st == 'L' then return end
  if st == 'X' then
    if exp <= now and keep <= now then st, dirty = 'F', true end
  elseif count > 0 then
    for _, h in ipairs(redis.call('ZRANGEBYSCORE', KZ, '-inf', string.format('%.0f', now - SHIFT))) do
      local id = string.sub(h, 2)
      local token, _, k, _, n = getHold(id)
      if not token then
        mend()
      elseif k > now then
        write('ZADD', KZ, string.format('%.0f', k - SHIFT), h)
      else
        dropHold(id, n)
      end
    end
  end
  if line then
    for _, w in ipairs(redis.call('ZRANGEBYSCORE', KZ, LINE, string.format('%.0f', now))) do
      dropPlace(string.sub(w, 2))
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
      elseif fits(mode, n) then
        grantNext(id, mode, n, deadline, hold, owner)
      else
        break
      end
    end
  end
  if not line and count == 0 and st ~= 'X' and st ~= 'F' then st, dirty = 'F', true end
end

-- retry says in how many microseconds the first hold ends; 0: none is held.
local function retry()
  if st == 'X' then return (exp > now and exp or keep) - now end
  if count == 0 then return 0 end
  return redis.call('ZRANGE', KZ, 0, 0, 'WITHSCORES')[2] + SHIFT - now
end

-- rouse tells everybody who awaits the latch, and forgets them.
local function rouse(token)
  for _, a in ipairs(redis.call('ZRANGE', KZ, 0, -1)) do
    if a ~= '!' then
      local session = redis.call('HGET', KM, a)
      if session then tell(session, string.sub(a, 2), token) end
      guard()
      write('HDEL', KM, a)
      write('ZREM', KZ, a)
    end
  end
end

-- kind says as what the name is in use.
local function kind()
  if st == 'P' then return string.format('it is a semaphore of %.0f', limit) end
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
      local _, e2 = getHold(string.sub(redis.call('ZRANGE', KZ, i, i)[1], 2), true)
      if e2 > now then return false, 2 end
    end
  end
  return false, 1
end

-- Short names for the scripts. The functions above do without: each function pays, whenever a script starts, for
-- every local that it shares, and the more there are the more.
local call, sub, find, num, fmt, floor, max = redis.call, string.sub, string.find, tonumber, string.format, math.floor, math.max
