-- Functions for the record of a name; see state.lua.

-- write is call for commands that write. When memory is full, Redis refuses a script whose first
-- write may need memory. It refuses no write after one that needs none.
local function write(...)
  if wrote then return call(...) end
  wrote = true
  local r = redis.pcall(...)
  if type(r) == 'table' and r.err then
    if not needed or not find(r.err, 'OOM', 1, true) then error(r) end
    call('ZREM', KZ, '!')
    return call(...)
  end
  return r
end

-- guard keeps z and m from vanishing with their last members until save. It must run before
-- anything is removed from them. While a slot of a Cluster moves, a look at a missing key would
-- fail the script halfway.
local function guard()
  if CLUSTER and not guarded then
    write('ZADD', KZ, '+inf', '!')
    write('HSET', KM, '!', '')
    guarded = true
  end
end

-- unsettle marks l before more than times change in z or m. save removes the mark.
local function unsettle()
  if marked then return end
  marked, dirty = true, true
  if stored then write('SETRANGE', KL, 1, '2') end
end

-- extend makes a key live for at least ms more, and reports whether that changed anything.
local function extend(key, ms)
  if call('PTTL', key) < ms then
    write('PEXPIRE', key, ms)
    return true
  end
end

local function len2(s)
  return fmt('%02d', #s) .. s
end

-- field reads a string after its length in two digits.
local function field(s, from)
  local n = num(sub(s, from, from + 1))
  if not n or #s < from + 1 + n then damaged(KL, 'a record of the name is cut short') end
  return sub(s, from + 2, from + 1 + n), from + 2 + n
end

-- forget removes z and m. The script must not read them after that.
local function forget()
  write('DEL', KZ, KM)
  guarded = false
end

local getHold -- returns token, lease end, keep time, since, n, owner of a group's grant
local getPlace -- returns deadline, time of joining, minimum hold, mode, n, owner of a waiter
local subscribed -- reports whether a session is subscribed at this server
local put -- writes the state

--FORMAT
put = function()
  if st ~= 'X' then settle() end
  local v = st .. (line and '1' or '0') .. fmt('%016.0f', last)
  local stay = reach
  if st == 'X' then
    v = v .. fmt('%016.0f%016d%016.0f%016.0f', exp, 0, max(keep - since, 0), since) .. tail
    stay = max(stay, exp, keep)
  elseif st == 'S' or st == 'P' then
    v = v .. fmt('%010.0f%010.0f%010.0f', used, count, limit) .. (set and 's' or '')
  elseif st == 'L' then
    v = v .. fmt('%016.0f', count)
    stay = now + LATCH
  end
  local ms = floor(max(stay - now, recordLife()) / 1000) + RETAIN
  if line or st == 'S' or st == 'P' or st == 'L' then
    local left = call('PTTL', KL) -- other grants may need it for longer than this script knows
    if left == -1 and (count > 0 or line) then left = call('PTTL', KZ) end -- l lived without end while a limit was set
    ms = left >= ms and left or ms + RETAIN -- more than needed, so that it is rarely needed
    if (reach > 0 or st == 'L') and extend(KZ, ms) then extend(KM, ms) end -- m lives as long as z, or longer
  end
  if set and STAYS then write('SET', KL, v) else write('SET', KL, v, 'PX', fmt('%.0f', ms)) end
  if st == 'X' then settle() end
  dirty, marked = false, false
end

-- save writes the state, and then sends the messages.
local function save()
  if dirty then put() end
  if guarded then
    write('ZREM', KZ, '!')
    write('HDEL', KM, '!')
  end
  guarded = false
  announce()
  local messages = outbox
  outbox = nil
  for _, m in ipairs(messages or {}) do call(m[1], m[2], m[3]) end
end

-- setFloor writes the floor of the shard's tokens.
local function setFloor(f)
  local v = fmt('%016.0f%016.0f', f, now)
  if FLOORLIFE > 0 then write('SET', KT, v, 'PX', FLOORLIFE) else write('SET', KT, v) end
end

-- floorOf returns the floor of the shard's tokens and when it was written. A damaged floor counts
-- as none and is replaced, because it serves many names.
local function floorOf()
  local v = redis.pcall('GET', KT)
  local _, to = find(type(v) == 'string' and v or '', '^%d+')
  if not to or to < 32 then return 0, 0 end
  local f, at = num(sub(v, 1, 16)), num(sub(v, 17, 32))
  if f * GRANULE > num(MAXTOKEN) then return 0, 0 end
  return f, at
end

-- block returns how many tokens a grant may take: n of an exclusive one. (A writer of a Format has n 2.
-- It leaves out a token, which does no harm.)
local function block(mode, n) return mode == 'x' and max(n, 1) or 1 end

-- least returns the least token of a grant that takes n, which is the largest of them. The smallest is
-- larger than the last token. new: f and at are the floor.
local function least(n, new, f, at)
  local token = num(agreed(new and now + n - 1 or max(now, last + n), now))
  if new and floor((token - n + 1) / GRANULE) <= f then
    if now < at or now - at >= 2 * GRANULE then f = f + 1 end -- the clock was set back
    token = max(token, f * GRANULE + n - 1)
  end
  return token
end

-- mint returns the token of a grant that may take n. The floor of a shard is the highest granule of time
-- that a token came from, with the time when that was written. It keeps the tokens of a name growing
-- after the name's record has expired, even if the clock was set back since.
local function mint(n)
  local new = fresh or last == 0 -- the name may have had tokens before its record expired
  local f, at
  if new then f, at = floorOf() end
  local token = least(n, new, f, at)
  if n > 1 then token = either(token, least(1, new, f, at), now) end
  local g = floor(token / GRANULE)
  if new or g > floor(last / GRANULE) then
    f = f or floorOf()
    if g > f then setFloor(g) end
  end
  if token > num(MAXTOKEN) then damaged(KL, 'no token is larger than its last one') end
  fresh, dirty, last = false, true, token
  return token
end

-- putHold writes a grant of a group. owner is its session and info.
local function putHold(id, token, e, k, s, n, owner)
  write('ZADD', KZ, fmt('%.0f', (e > now and e or k) - SHIFT), 'h' .. id)
  write('HSET', KM, 'h' .. id, fmt('%016.0f%016.0f%016.0f%016.0f%010.0f', token, e, k, s, n) .. owner)
  reach = max(reach, e, k)
  keepHold(id, n, max(e, k))
end

-- must: z has the grant.
getHold = function(id, must)
  local r = call('HGET', KM, 'h' .. id)
  if not r then
    if must then damaged(KM, 'the record of a grant is missing') end
    return
  end
  local _, to = find(r, '^%d+')
  if not to or to < 76 or sub(r, 1, 16) > MAXTOKEN then damaged(KM, 'the record of a grant cannot be read') end
  local e, k, n = num(sub(r, 17, 32)), num(sub(r, 33, 48)), num(sub(r, 65, 74))
  if not present(id, n, max(e, k)) then e, k = 0, 0 end
  return num(sub(r, 1, 16)), e, k, num(sub(r, 49, 64)), n, sub(r, 75)
end

local function removeHold(id)
  guard()
  unsettle()
  loseHold(id)
  write('HDEL', KM, 'h' .. id)
  write('ZREM', KZ, 'h' .. id)
end

local function dropHold(id, n)
  removeHold(id)
  used, count, dirty = used - n, count - 1, true
end

-- dropAll drops the grants of a group, which the other library has ended.
local function dropAll()
  for _, h in ipairs(call('ZRANGEBYSCORE', KZ, '-inf', 0)) do
    local _, _, _, _, n = getHold(sub(h, 2), true)
    dropHold(sub(h, 2), n)
  end
end

-- putPlace writes a place. number is its position in the queue, for a new one.
local function putPlace(id, deadline, joined, hold, mode, n, owner, number)
  local till = fmt('%.0f', deadline)
  if number then
    unsettle()
    write('ZADD', KZ, number, 'q' .. id, till, 'w' .. id)
  else
    write('ZADD', KZ, till, 'w' .. id)
  end
  write('HSET', KM, 'w' .. id, fmt('%016.0f%016.0f%016.0f', deadline, joined, hold) .. mode .. fmt('%010.0f', n) .. owner)
  reach = max(reach, deadline)
  stay(id, mode, n, owner, joined)
end

getPlace = function(id)
  local r = call('HGET', KM, 'w' .. id)
  if not r then return end
  local _, to = find(r, '^%d+')
  local _, n = find(r, '^[xsp]%d+', 49)
  if to ~= 48 or not n or n < 61 then damaged(KM, 'the record of a waiter cannot be read') end
  return num(sub(r, 1, 16)), num(sub(r, 17, 32)), num(sub(r, 33, 48)), sub(r, 49, 49), num(sub(r, 50, 59)), sub(r, 60)
end

local function dropPlace(id)
  guard()
  unsettle()
  quit(id)
  write('HDEL', KM, 'w' .. id)
  write('ZREM', KZ, 'w' .. id, 'q' .. id)
end

-- repair makes z and m agree with each other and with the state, after a script failed halfway or
-- another program removed something.
local function repair()
  dirty = true
  if st == 'L' then
    local c = num(call('HGET', KM, 'c') or '') -- written by the last count-down
    if c and c < count then count = c end
    return
  end
  used, count, line = 0, 0, false
  if st == 'F' or call('EXISTS', KZ, KM) < 2 then
    forget()
    return
  end
  for _, e in ipairs(call('ZRANGE', KZ, 0, -1)) do
    local what, id = sub(e, 1, 1), sub(e, 2)
    if what == 'h' then
      local t, _, _, _, n = getHold(id)
      if t and st ~= 'X' then
        used, count, last = used + n, count + 1, max(last, t)
      else
        removeHold(id)
      end
    elseif what == 'q' then
      if getPlace(id) then line = true else dropPlace(id) end
    end
  end
end

-- load reads a name. v is the value of l, if the caller has it.
local function load(l, z, m, t, v)
  KL, KZ, KM, KT = l, z, m, t
  start()
  if v == nil or type(v) == 'table' then v = call('GET', l) end
  dirty, fresh, stored, marked, reach, used, count, limit, set = false, not v, v, false, 0, 0, 0, 0, false
  if not v then
    st, line, last = 'F', false, 0
    observe()
    return
  end
  local _, to = find(v, '^[FXSPL][012]%d+')
  st = sub(v, 1, 1)
  local least = st == 'F' and 18 or st == 'X' and 84 or st == 'L' and 34 or 48 -- where its digits end
  if not to or to < least or sub(v, 3, 18) > MAXTOKEN then damaged(l, 'it is not the state of a name') end
  line, marked, last = sub(v, 2, 2) == '1', sub(v, 2, 2) == '2', num(sub(v, 3, 18))
  if st == 'X' then
    exp, keep, since, tail = sub(v, 19, 34) + sub(v, 35, 50), num(sub(v, 51, 66)), num(sub(v, 67, 82)), sub(v, 83)
    if keep > 0 then keep = since + keep end
  elseif st == 'S' or st == 'P' then
    used, count, limit, set = num(sub(v, 19, 28)), num(sub(v, 29, 38)), num(sub(v, 39, 48)), sub(v, 49, 49) == 's'
  elseif st == 'L' then
    count = num(sub(v, 19, 34))
  end
  if marked or st ~= 'L' and (line or count > 0)
    and (call('EXISTS', z, m) < 2 or count > 0 and call('ZCOUNT', z, '-inf', 0) ~= count) then
    repair()
  end
  if observe() then dropAll() end
end

local function head()
  local r = call('ZRANGEBYSCORE', KZ, 1, LINE, 'LIMIT', 0, 1)[1]
  return r and nextOf(sub(r, 2))
end

local function waiters()
  return line and call('ZCOUNT', KZ, 1, LINE) or 0
end

-- ahead returns how many waiters are before id, or nothing if z does not have its place.
local function ahead(id)
  local rank = call('ZRANK', KZ, 'q' .. id)
  return rank and rank - count -- the grants of a group come before the queue
end

local function fits(mode, n, id)
  if mode == 'p' then return used + n <= limit and admits(mode, n) end
  if st == 'X' then return false end
  return (mode == 's' or count == 0) and admits(mode, n, id)
end

-- setAside renames a grant of a group that has ended but is kept: its id is in use again. One that
-- the other library has ended is dropped.
local function setAside(id)
  local t, e, k, s, n, o = getHold(id)
  if not t then return end
  if k <= now then return dropHold(id, n) end
  removeHold(id)
  putHold(id .. '~' .. fmt('%.0f', t), t, e, k, s, n, o)
end

-- give makes id a holder of the name. owner: the session's id with its length, info.
local function give(id, mode, n, e, hold, owner)
  local token = claim(mode, n, mint(block(mode, n)))
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

-- enlist adds the name to the index, if it is new here. The index serves many names, so a damaged
-- index must not fail this one. A name with a hash tag of its own has no index.
local function enlist()
  if INDEX then redis.pcall('ZADD', KEYS[5], 0, sub(KEYS[1], #KEYS[5] + 2)) end
end

-- channel returns the channel of a session, and how to publish there. The session's first character
-- gives the kind of channel; see layout.go.
local function channel(session)
  local kind = sub(session, 1, 1)
  if kind == '+' then return sub(KT, 1, -2) .. 's:' .. sub(session, 2), 'SPUBLISH', 'SHARDNUMSUB' end
  local prefix = sub(KT, 1, find(KT, '{', 1, true) - 1)
  if kind == '-' then return prefix .. 's:' .. sub(session, 2), 'PUBLISH' end
  return prefix .. 's:' .. session, 'PUBLISH', 'NUMSUB'
end

-- Subscribers at replicas and patterns do not count. In a Cluster without sharded channels it is
-- unknown, and counts as yes.
subscribed = function(session)
  local to, _, count_ = channel(session)
  return not count_ or call('PUBSUB', count_, to)[2] > 0
end

-- publish queues a message for save to send.
local function publish(session, message)
  local to, how = channel(session)
  outbox = outbox or {}
  outbox[#outbox + 1] = {how, to, message}
end

-- notify queues a message to a waiter.
local function notify(session, id, token)
  publish(session, id .. ' ' .. fmt('%.0f', token) .. stamp(now))
end

-- callBack queues a message to the holder that a place in the queue waits, if its grant wants to know.
local function callBack()
  if st ~= 'X' or exp <= now then return end
  local id, p = field(tail, 1)
  local session = field(tail, p)
  if sub(session, 1, 1) == '!' then publish(sub(session, 2), id .. ' w') end
end

-- grantNext gives the name to a waiter that leaves the queue, if its session is subscribed. The
-- lease runs from the waiter's last renewal, so that a dead one delays the queue no longer than its
-- place would have.
local function grantNext(id, mode, n, deadline, hold, owner)
  local session = field(owner, 1)
  local there = subscribed(session)
  dropPlace(id)
  if there then
    notify(session, id, give(id, mode, n, deadline, hold, owner))
  else
    mint(block(mode, n)) -- each turn has its tokens
  end
end

-- advance ends what has expired, and hands what is free to the queue.
local function advance()
  if st == 'F' or st == 'L' then return end
  if st == 'X' then
    if exp <= now and keep <= now then
      st, dirty = 'F', true
      settle()
    end
  elseif count > 0 then
    for _, h in ipairs(call('ZRANGEBYSCORE', KZ, '-inf', fmt('%.0f', now - SHIFT))) do
      local id = sub(h, 2)
      local token, _, k, _, n = getHold(id)
      if not token then
        repair()
      elseif k > now then
        write('ZADD', KZ, fmt('%.0f', k - SHIFT), h)
      else
        dropHold(id, n)
      end
    end
  end
  if line then
    for _, w in ipairs(call('ZRANGEBYSCORE', KZ, LINE, fmt('%.0f', now))) do
      dropPlace(sub(w, 2))
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
      elseif fits(mode, n, id) and not yields() then
        grantNext(id, mode, n, deadline, hold, owner)
      else
        break
      end
    end
  end
  if not line and count == 0 and st ~= 'X' and st ~= 'F' and not set then st, dirty = 'F', true end
  if line and st == 'F' then st, dirty = 'S', true end -- the other library's holder is in the way
end

-- grantOf is getHold, but drops a grant that the other library has ended.
local function grantOf(id)
  local t, e, k, s, n, o = getHold(id)
  if not t or e > now or k > now then return t, e, k, s, n, o end
  dropHold(id, n)
  advance()
end

-- firstEnd returns how many microseconds are left until the first grant of the group ends.
local function firstEnd()
  return call('ZRANGE', KZ, 0, 0, 'WITHSCORES')[2] + SHIFT - now
end

-- retry returns how many microseconds are left until the first grant ends; 0: there is none.
local function retry()
  if st == 'X' then return (exp > now and exp or keep) - now end
  local left = othersLeft()
  if count == 0 then return left end
  return left > 0 and math.min(left, firstEnd()) or firstEnd()
end

-- notifyAll notifies all waiters of the latch, and forgets them.
local function notifyAll(token)
  for _, a in ipairs(call('ZRANGE', KZ, 0, -1)) do
    if a ~= '!' then
      local session = call('HGET', KM, a)
      if session then notify(session, sub(a, 2), token) end
      guard()
      write('HDEL', KM, a)
      write('ZREM', KZ, a)
    end
  end
end

-- kind describes what the name is in use as.
local function kind()
  if st == 'P' then return fmt('it is a semaphore of %.0f', limit) end
  if st == 'L' then return 'it is a latch' end
  return 'it is a lock'
end

-- owned reports whether id holds the name under token; if not, also 1 (gone) or 2 (taken).
local function owned(id, token)
  if st == 'X' then
    if exp <= now then return false, 1 end
    if same(last, token) and field(tail, 1) == id then return true end
    return false, last > token and 2 or 1
  end
  if st ~= 'S' and st ~= 'P' then return false, 1 end
  local t, e = grantOf(id)
  if t and same(t, token) and e > now then return true end
  if last > token then
    for i = 0, count - 1 do -- mostly the first is unexpired; there may be thousands
      local _, e2 = getHold(sub(call('ZRANGE', KZ, i, i)[1], 2), true)
      if e2 > now then return false, 2 end
    end
  end
  return false, 1
end
