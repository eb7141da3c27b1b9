-- The keys of Redisson beside the record of a name; see doc.go for the keys. It takes the place of
-- lua/format.lua of package redislock. FENCED: a mutex is an RFencedLock. PLAIN: a semaphore is an
-- RSemaphore.

local KN         -- Redisson's key of the name: the name itself
local was        -- the field of our exclusive grant in KN
local writes     -- our exclusive grant is a write lock of an RReadWriteLock, else an RLock
local freed      -- what this script has taken from KN: lock, read, write
local more       -- a semaphore may have more free permits than before
local news       -- the number to announce of a latch
local counted    -- the name was a semaphore when it was loaded

-- prefixed and suffixed make the names of further keys as Redisson does.
local function prefixed(prefix)
  if find(KN, '{', 1, true) then return prefix .. ':' .. KN end
  return prefix .. ':{' .. KN .. '}'
end

local function suffixed(suffix)
  if find(KN, '{', 1, true) then return KN .. ':' .. suffix end
  return '{' .. KN .. '}:' .. suffix
end

-- holder returns how Redisson knows a request: a UUID and a thread, as those of a client in Java.
local function holder(id)
  local h = redis.sha1hex(id)
  return sub(h, 1, 8) .. '-' .. sub(h, 9, 12) .. '-' .. sub(h, 13, 16) .. '-' .. sub(h, 17, 20) .. '-' .. sub(h, 21, 32) .. ':1'
end

-- slot is the key that expires with a reader's lease.
local function slot(h, i) return suffixed(h .. ':rwlock_timeout:' .. i) end

-- zset has the permits that are held.
local function zset() return suffixed('timeout') end

local function typeOf() return call('TYPE', KN).ok end

-- unlike ends the script if KN has a type that no lock of Redisson has.
local function unlike(t)
  if t ~= 'none' and t ~= 'hash' and t ~= 'string' then damaged(KN, 'it is no lock of Redisson, but a ' .. t) end
  return t
end

-- lasts makes KN last until a time, or longer if it does already.
local function lasts(till)
  local ms = math.ceil((till - now) / 1000)
  if ms > call('PTTL', KN) then write('PEXPIRE', KN, fmt('%.0f', ms)) end
end

-- number reads a number of Redisson.
local function number(v)
  return num(v) or damaged(KN, 'it is no number')
end

local function free() return number(call('GET', KN) or 0) end

-- permits returns the IDs of the permits from to to of a request, 16 bytes each.
local function permits(id, from, to)
  local all = {}
  for i = from, to do
    all[#all + 1] = string.gsub(sub(redis.sha1hex(id .. ' ' .. i), 1, 32), '..', function(h) return string.char(num(h, 16)) end)
  end
  return all
end

-- every calls a command with all members of a list, some hundreds at a time, each after a score if one
-- is given. It returns the sum of the answers.
local function every(command, key, score, list)
  local sum, args = 0, {}
  for i, x in ipairs(list) do
    if score then args[#args + 1] = score end
    args[#args + 1] = x
    if i % 500 == 0 or i == #list then
      sum, args = sum + write(command, key, unpack(args)), {}
    end
  end
  return sum
end

-- create makes the key of a semaphore that was evicted or deleted, or was never there.
local function create()
  local held = PLAIN and used or call('ZCARD', zset())
  write('SET', KN, fmt('%.0f', max(limit - held, 0)))
  more = true
end

-- add gives n permits back that are in no other key any more. It comes last: a script that fails before
-- it makes permits fewer, never more.
local function add(n)
  if n == 0 then return end
  if not PLAIN and call('EXISTS', KN) == 0 then create() else write('INCRBY', KN, fmt('%.0f', n)) end
  more = true
end

-- reclaim ends the permits of Redisson's clients that have expired. They are told by Redisson's own
-- clocks: those of clients, not the server's.
local function reclaim()
  if PLAIN then return end
  repeat
    local ended = call('ZRANGEBYSCORE', zset(), 0, fmt('%.0f', floor(now / 1000)), 'LIMIT', 0, 500)
    add(every('ZREM', zset(), nil, ended))
  until #ended < 500
end

-- total returns how many permits a semaphore has, held or free. Of an RSemaphore nobody knows. In Java
-- it may fall below zero.
local function total()
  local n = call('GET', KN)
  if not n or PLAIN then return end
  return math.min(max(number(n) + call('ZCARD', zset()), 0), 2 ^ 31)
end

local function start()
  KN = sub(KL, #KT + 2)
  was, writes, freed, more, news = false, false, false, false, nil
end

local function observe()
  counted = st == 'P'
  if st == 'X' then
    -- KN may outlive the grant by a moment, or for as long as another program says.
    local h = holder(field(tail, 1))
    if unlike(typeOf()) == 'hash' then
      if call('HEXISTS', KN, h) == 1 then
        was = h
      elseif call('HEXISTS', KN, h .. ':write') == 1 then
        was, writes = h .. ':write', true
      end
    end
    if not was and max(exp, keep) > now then exp, keep, dirty = 0, 0, true end
    if was and call('PTTL', KN) == -1 then dirty = true end -- a script has failed halfway: see settle
  elseif st == 'S' then
    return count > 0 and (unlike(typeOf()) ~= 'hash' or call('HGET', KN, 'mode') ~= 'read')
  elseif st == 'P' then
    local n = total()
    if n and n ~= limit then limit, dirty = n, true end
    return count > 0 and not PLAIN and call('EXISTS', zset()) == 0
  elseif st == 'L' then
    -- Redisson removes a latch at zero. One that has more than before is a new one, unless the last
    -- script failed before it took the one.
    local n = free()
    if marked and n == count + 1 then
      if count > 0 then write('DECR', KN) else write('DEL', KN) end
    elseif n ~= count then
      if n > count then forget() end
      count, dirty = n, true
    end
  end
end

-- The record of an exclusive grant is written before the grant in KN: see put in common.lua. So a
-- script that fails in between leaves no lock in KN of which no record tells.
local function settle()
  if st == 'X' then
    local h = holder(field(tail, 1)) .. (writes and ':write' or '')
    if was ~= h then
      if was then write('HDEL', KN, was) end
      if writes then write('HSET', KN, 'mode', 'write', h, 1) else write('HSET', KN, h, 1) end
    end
    was, freed = h, false
    write('PEXPIRE', KN, fmt('%.0f', math.ceil((max(exp, keep) - now) / 1000)))
  elseif was then
    write('HDEL', KN, was)
    if writes and call('HLEN', KN) == 1 then write('DEL', KN) end
    freed = writes and 'write' or 'lock'
    was, writes = false, false
  end
  -- The last user of a semaphore whose limit was removed has left.
  if counted and st == 'F' and unlike(typeOf()) == 'string' and call('ZCARD', zset()) == 0 then
    write('DEL', KN)
  end
end

local function present(id, n, till)
  if till <= now then return true end
  if st == 'P' then
    if PLAIN then return true end
    for _, p in ipairs(permits(id, 1, n)) do
      if not call('ZSCORE', zset(), p) then return false end
    end
    return true
  end
  local h = holder(id)
  return call('HEXISTS', KN, h) == 1 and call('EXISTS', slot(h, 1)) == 1
end

local function keepHold(id, n, till)
  local h = holder(id)
  if st == 'P' and PLAIN then
    -- m has how many permits of KN a request has taken.
    local taken = num(call('HGET', KM, 'n' .. id) or 0)
    if taken < n then write('INCRBY', KN, taken - n) end
    if taken ~= n then write('HSET', KM, 'n' .. id, n) end
    add(max(taken - n, 0))
  elseif st == 'P' then
    local ids, ended, i = permits(id, 1, n), 0, n + 1
    if not call('ZSCORE', zset(), ids[1]) then write('INCRBY', KN, -n) end
    every('ZADD', zset(), fmt('%.0f', math.ceil(till / 1000)), ids)
    local ms = call('PTTL', KN)
    if ms > 0 then write('PEXPIRE', zset(), ms) end
    while write('ZREM', zset(), permits(id, i, i)[1]) == 1 do i, ended = i + 1, ended + 1 end -- after Reduce
    add(ended)
  else
    write('SET', slot(h, 1), 1, 'PX', fmt('%.0f', max(math.ceil((till - now) / 1000), 1)))
    write('HSET', KN, 'mode', 'read', h, 1)
    lasts(till)
    if was then -- a downgrade
      if was ~= h then write('HDEL', KN, was) end
      was, writes, freed = false, false, 'write'
    end
  end
end

-- slotsLast returns how long the slots of a reader last that has taken n locks.
local function slotsLast(h, n)
  if n > 100 then return call('PTTL', KN) end -- too many to look at
  local longest = 0
  for i = 1, n do longest = max(longest, call('PTTL', slot(h, i))) end
  return longest
end

-- leave takes a reader, with n locks, from KN. Then KN lasts as long as the reader that lasts longest.
local function leave(h, n)
  write('HDEL', KN, h)
  for i = 1, math.min(n, 100) do write('DEL', slot(h, i)) end
  freed = 'read'
  local all, longest, ends = call('HGETALL', KN), 0, call('PTTL', KN)
  for i = 1, #all, 2 do
    if all[i] ~= 'mode' and longest < ends then longest = max(longest, slotsLast(all[i], num(all[i + 1]) or 0)) end
  end
  if longest > 0 and longest < ends then
    write('PEXPIRE', KN, longest)
  elseif longest == 0 and call('HGET', KN, 'mode') == 'read' then -- they have ended without a word
    write('DEL', KN)
  end
end

local function loseHold(id)
  if st == 'P' and PLAIN then
    local n = num(call('HGET', KM, 'n' .. id) or 0)
    if n > 0 then
      write('HDEL', KM, 'n' .. id)
      add(n)
    end
  elseif st == 'P' then
    local _, _, _, _, n = getHold(id)
    add(every('ZREM', zset(), nil, permits(id, 1, n or 0)))
  elseif unlike(typeOf()) == 'hash' and call('HEXISTS', KN, holder(id)) == 1 then
    leave(holder(id), 1)
  end
end

-- mend makes good what a script left in KN that failed halfway: a lock without an end gets one. It
-- returns true if there is no lock, because KN has no holder.
local function mend()
  if call('HLEN', KN) == 1 and call('HEXISTS', KN, 'mode') == 1 then
    write('DEL', KN)
    return true
  end
  if call('PTTL', KN) == -1 then write('PEXPIRE', KN, RETAIN) end
end

-- optional is call for a command that Redis before 7 does not have.
local function optional(...)
  local r = redis.pcall(...)
  if type(r) == 'table' and r.err and not find(r.err, 'nknown', 1, true) then error(r) end
  return r
end

-- tell announces a number.
local function tell(channel, n)
  call('PUBLISH', channel, fmt('%.0f', n))
  if CLUSTER then optional('SPUBLISH', channel, fmt('%.0f', n)) end
end

-- channelOf returns the channel on which it is announced what has become free.
local function channelOf(what)
  return prefixed(what == 'lock' and 'redisson_lock__channel' or what == 'permits' and 'redisson_sc' or 'redisson_rwlock')
end

-- attend notes that a session of ours listens for the name, in a zset of its own. A session goes on
-- listening for half a minute after it has waited.
local ATTENDS = 40000000

local function attendants() return sub(KT, 1, -2) .. 'u:' .. KN end

local function attend(session)
  local u = attendants()
  write('ZADD', u, fmt('%.0f', now + ATTENDS), session)
  write('PEXPIRE', u, ATTENDS / 1000)
end

--FAIR
-- strangers reports whether more listen to a channel at this server than sessions of ours.
local function strangers(channel)
  local n = call('PUBSUB', 'NUMSUB', channel)[2]
  if CLUSTER then n = max(n, optional('PUBSUB', 'SHARDNUMSUB', channel)[2] or 0) end
  return n > call('ZCOUNT', attendants(), fmt('%.0f', now), '+inf')
end

-- A name that our waiters hand on among themselves would never be free for Redisson's clients. So now
-- and then it is free for all, and for GRACE our own waiters leave it to them. If nobody took it, it is
-- free half as often from then on. m has three numbers: j, how often in a row it was handed on; w, how
-- often in a row nobody took it; y, until when it is left alone.
local GRACE = 25000

local function yields()
  local what = more and 'permits' or freed
  if FAIR or not what or not more and typeOf() ~= 'none' then return false end
  local times, wasted = write('HINCRBY', KM, 'j', 1), call('HGET', KM, 'w')
  if times <= 3 * 2 ^ num(wasted or 0) then return false end
  if not strangers(channelOf(what)) then
    -- In a Cluster they may listen at another server.
    if not CLUSTER or not wasted and times <= 48 then return false end
    wasted = wasted or 4
  end
  write('HSET', KM, 'j', 0, 'w', math.min((wasted or 0) + 1, 12), 'y', fmt('%.0f', now + GRACE))
  return true
end

-- yielded returns for how many microseconds the name is still left to Redisson's clients.
local function yielded()
  if FAIR or not line then return 0 end
  return max(num(call('HGET', KM, 'y') or 0) - now, 0)
end

-- taken notes that a client of Redisson has the name.
local function taken()
  if line and not FAIR and call('HGET', KM, 'w') ~= '0' then write('HSET', KM, 'w', 0, 'y', 0) end
end

local function admits(mode, n, id)
  local t = unlike(typeOf())
  if mode == 'p' then
    if t == 'hash' then return false end
    if t == 'none' then create() end
    reclaim()
    if not PLAIN and call('ZCARD', zset()) > used then taken() end
    return free() >= n and yielded() == 0
  end
  if t == 'none' or t == 'hash' and mend() then return yielded() == 0 and (mode == 's' or n ~= 1 or may(id)) end
  if not was then taken() end
  return mode == 's' and t == 'hash' and call('HGET', KN, 'mode') == 'read'
end

local function claim(mode, n, token)
  if mode ~= 'x' then return token end
  writes = n == 2
  if writes then return token end
  local key = prefixed('redisson_lock_token')
  local v = redis.pcall('GET', key)
  if not v and not FENCED then return token end
  if v and (type(v) ~= 'string' or not find(v, '^%d+$')) then damaged(key, 'it is no fencing token') end
  token = max(token, num(v or 0) + 1)
  if token > num(MAXTOKEN) then damaged(key, 'no token is larger') end
  write('SET', key, fmt('%.0f', token))
  last = token
  return token
end

-- conflict also makes a semaphore of Redisson one of ours.
local function conflict(mode, n, limit_)
  local t = unlike(typeOf())
  if mode ~= 'p' then
    if t == 'string' then return 'it is a semaphore or latch of Redisson' end
    if t == 'hash' and st == 'F' and not mend() then
      local rw = call('HGET', KN, 'mode')
      if mode == 'x' and n == 1 and rw then return 'it is a read/write lock of Redisson' end
      if (mode == 's' or n == 2) and not rw then return 'it is a lock of Redisson' end
    end
    return
  end
  if t == 'hash' then return 'it is a lock of Redisson' end
  if st ~= 'F' and st ~= 'P' or st == 'F' and t == 'none' and limit_ == 0 then return end
  if st == 'F' then
    forget()
    st, used, count, set, dirty = 'P', 0, 0, true, true
  end
  limit = total() or limit > 0 and limit or limit_ > 0 and limit_ or 2 ^ 30
end

-- mineOf returns the fields or permits of our own grants in Redisson's keys.
local function mineOf()
  local mine = {}
  if was then mine[was] = true end
  if count > 0 and (st == 'S' or st == 'P') then
    for _, h in ipairs(call('ZRANGEBYSCORE', KZ, '-inf', 0)) do
      local id = sub(h, 2)
      local _, _, _, _, n = getHold(id)
      if st == 'S' then mine[holder(id)] = true end
      for _, p in ipairs(st == 'P' and permits(id, 1, n or 0) or {}) do mine[p] = true end
    end
  end
  return mine
end

-- tokenOf returns the number under which an operator breaks a grant of Redisson: its fencing token,
-- or a number made of its ID.
local function tokenOf(id, what)
  local v = what == 'lock' and redis.pcall('GET', prefixed('redisson_lock_token'))
  if type(v) == 'string' and find(v, '^%d+$') and num(v) <= num(MAXTOKEN) then return num(v) end
  return num(sub(redis.sha1hex(KN .. ' ' .. id), 1, 13), 16)
end

local function hex(s)
  return (string.gsub(s, '.', function(c) return fmt('%02x', string.byte(c)) end))
end

-- each calls visit with the ID of each grant of Redisson, what it is, how many locks it has taken, and
-- when it ends in milliseconds from now, until visit returns true.
local function each(visit)
  local t = typeOf()
  if t == 'hash' then
    local mine, all, ms = mineOf(), call('HGETALL', KN), call('PTTL', KN)
    local rw = call('HGET', KN, 'mode')
    for i = 1, #all, 2 do
      local f, n, left = all[i], num(all[i + 1]) or 0, ms
      if f ~= 'mode' and not mine[f] then
        local what = not rw and 'lock' or find(f, ':write$') and 'write' or 'read'
        if what == 'read' then left = slotsLast(f, n) end
        if visit(f, what, n, left) then return true end
      end
    end
  elseif t == 'string' and not PLAIN and (st == 'P' or st == 'F') then
    local mine, all = mineOf(), call('ZRANGE', zset(), 0, -1, 'WITHSCORES')
    for i = 1, #all, 2 do
      local left = num(all[i + 1]) - floor(now / 1000)
      if not mine[all[i]] and left > 0 and visit(all[i], 'permits', 1, left) then return true end
    end
  end
end

local letters = {lock = 'x', write = 'x', read = 's', permits = 'p'}

-- bounded turns milliseconds into microseconds. What never ends has 0, as what is not known.
local function bounded(ms)
  return ms >= 0 and ms < 2 ^ 40 and max(ms, 1) * 1000 or 0
end

local function others(most)
  local all = {}
  if most == 0 then return all end
  each(function(id, what, _, left)
    local name = what == 'permits' and hex(id) or id
    local info = cjson.encode({prog = 'Redisson', note = name})
    all[#all + 1] = {name, letters[what], 1, tokenOf(id, what), 0, bounded(left), 0, info}
    return #all >= most
  end)
  if st == 'F' and all[1] and all[1][2] == 'p' then limit = total() end -- a semaphore that no record knows
  return all
end

local function othersLeft()
  if typeOf() == 'hash' then return bounded(call('PTTL', KN)) end
  local left = 0
  if st == 'P' and not PLAIN then
    local ms = floor(now / 1000)
    local next_ = call('ZRANGEBYSCORE', zset(), '(' .. fmt('%.0f', ms), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
    left = next_ and bounded(num(next_) - ms) or 0
  end
  local rest = yielded()
  if rest > 0 then return rest end
  return max(left, aheadLeft() * 1000)
end

local function breakOther(token)
  return each(function(id, what, n)
    if tokenOf(id, what) ~= token then return false end
    if what == 'permits' then
      add(write('ZREM', zset(), id))
    elseif what == 'read' then
      leave(id, n)
    else
      freed = what
      write('HDEL', KN, id)
      if what == 'write' and call('HLEN', KN) == 1 then
        write('DEL', KN)
      elseif what == 'write' then
        write('HSET', KN, 'mode', 'read') -- the writer reads, too
      end
    end
    return true
  end) or false
end

-- limitTo is SetLimit. It returns a text if the name is something else.
local function limitTo(n)
  local t = unlike(typeOf())
  if t == 'hash' then return 'it is a lock of Redisson' end
  if n == 0 then
    if st == 'F' and t == 'string' then st, used, count, set, counted = 'P', 0, 0, true, true end
    return
  end
  if t == 'none' then
    limit = n
    create()
  elseif PLAIN and not (st == 'P' and set) then
    return 'it is an RSemaphore, which does not tell how many permits it has'
  else
    write('INCRBY', KN, fmt('%.0f', n - (total() or limit)))
    more = true
  end
end

-- knowLatch makes a latch of Redisson one of ours. It returns a text if the name is something else.
local function knowLatch()
  local t = unlike(typeOf())
  if t == 'hash' and st == 'F' then return 'it is a lock of Redisson' end
  if t == 'string' and st == 'F' then
    forget()
    st, count, dirty = 'L', free(), true
  end
end

local function setLatch()
  if count > 0 then
    write('SET', KN, fmt('%.0f', count))
    news = 1
  end
end

local function countLatch()
  if count > 0 then
    write('DECR', KN)
  else
    write('DEL', KN)
    news = 0
  end
end

-- Redisson announces that a latch is gone as if it were a new one, so its waiters wait for ever. As
-- at zero, they go on.
local function removeLatch()
  write('DEL', KN)
  news = 0
end

-- recordLife returns how many microseconds the record lives at least: of an RSemaphore nothing else
-- knows what our holders have.
local function recordLife()
  return PLAIN and st == 'P' and count > 0 and 30 * 86400000000 or 0
end

local function announce()
  if freed or vacated then
    local t = typeOf()
    if t == 'none' and FAIR and freed ~= 'read' and freed ~= 'write' then
      tellNext()
    elseif t == 'none' and freed then
      tell(channelOf(freed), freed == 'write' and 1 or 0)
    elseif freed == 'write' and t == 'hash' and call('HGET', KN, 'mode') == 'read' then
      tell(channelOf(freed), 1) -- Redisson's readers may enter
    end
  end
  -- Nothing below 1 is announced for a semaphore: Redisson's waiters cannot take it.
  if more and free() > 0 then tell(channelOf('permits'), free()) end
  if news then tell('redisson_countdownlatch__channel__{' .. KN .. '}', news) end
  freed, more, news, vacated = false, false, nil, false
end
