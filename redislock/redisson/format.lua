-- The keys of Redisson beside the record of a name; see doc.go for the keys. It takes the place of
-- lua/format.lua of package redislock. FENCED: a mutex is an RFencedLock. PLAIN: a semaphore is an
-- RSemaphore.

local KN         -- Redisson's key of the name: the name itself
local was        -- the field of our exclusive grant in KN
local writes     -- our exclusive grant is a write lock of an RReadWriteLock, else an RLock
local freed      -- what this script has taken from KN: lock, read, write
local news       -- the number to announce on a channel, by the channel
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

-- permits returns the IDs of the permits from to to of a request, 16 bytes each.
local function permits(id, from, to)
  local all = {}
  for i = from, to do
    all[#all + 1] = string.gsub(sub(redis.sha1hex(id .. ' ' .. i), 1, 32), '..', function(h) return string.char(num(h, 16)) end)
  end
  return all
end

-- tell announces a number. Nothing below 1 is announced for a semaphore: Redisson's waiters cannot
-- take it.
local function tell(channel, n)
  news = news or {}
  news[channel] = fmt('%.0f', n)
end

local function tellFree()
  local free = num(call('GET', KN) or 0)
  if free > 0 then tell(prefixed('redisson_sc'), free) end
end

-- reclaim ends the permits of Redisson's clients that have expired. They are told by Redisson's own
-- clocks: those of clients, not the server's.
local function reclaim()
  if PLAIN then return end
  local z = suffixed('timeout')
  local ended = call('ZRANGEBYSCORE', z, 0, fmt('%.0f', floor(now / 1000)), 'LIMIT', 0, 100)
  if #ended == 0 then return end
  write('ZREM', z, unpack(ended))
  write('INCRBY', KN, #ended)
  tellFree()
end

-- total returns how many permits a semaphore has, held or free. Of an RSemaphore nobody knows.
local function total()
  local free = call('GET', KN)
  if not free or PLAIN then return end
  return num(free) + call('ZCARD', suffixed('timeout'))
end

local function observe()
  KN = sub(KL, #KT + 2)
  was, writes, freed, news, counted = false, false, false, nil, st == 'P'
  if st == 'X' and (exp > now or keep > now) then
    local h = holder(field(tail, 1))
    if unlike(typeOf()) == 'hash' then
      if call('HEXISTS', KN, h) == 1 then
        was = h
      elseif call('HEXISTS', KN, h .. ':write') == 1 then
        was, writes = h .. ':write', true
      end
    end
    if not was then exp, keep, dirty = 0, 0, true end
  elseif st == 'P' then
    local n = total()
    if n and n ~= limit then limit, dirty = n, true end
  elseif st == 'L' then
    -- Redisson removes a latch at zero. One that exists after that is a new one.
    local n = num(call('GET', KN) or 0)
    if n ~= count then
      if count == 0 then forget() end
      count, dirty = n, true
    end
  end
end

local function settle()
  if st == 'X' then
    local h = holder(field(tail, 1)) .. (writes and ':write' or '')
    if was and was ~= h then write('HDEL', KN, was) end
    if was ~= h then
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
  if counted and st == 'F' and unlike(typeOf()) == 'string' and call('ZCARD', suffixed('timeout')) == 0 then
    write('DEL', KN)
  end
end

local function present(id, n, till)
  if till <= now then return true end
  if st == 'P' then
    if PLAIN then return true end
    for _, p in ipairs(permits(id, 1, n)) do
      if not call('ZSCORE', suffixed('timeout'), p) then return false end
    end
    return true
  end
  local h = holder(id)
  return call('HEXISTS', KN, h) == 1 and call('EXISTS', slot(h, 1)) == 1
end

local function keepHold(id, n, till)
  if st == 'P' then
    if PLAIN then
      -- m has how many permits of KN a request has taken.
      local had = num(call('HGET', KM, 'n' .. id) or 0)
      if had ~= n then
        write('HSET', KM, 'n' .. id, n)
        write('INCRBY', KN, had - n)
        if had > n then tellFree() end
      end
      return
    end
    local z, score, new, old = suffixed('timeout'), fmt('%.0f', math.ceil(till / 1000)), 0, 0
    for _, p in ipairs(permits(id, 1, n)) do new = new + write('ZADD', z, score, p) end
    local i = n + 1
    while true do -- after Reduce
      if write('ZREM', z, permits(id, i, i)[1]) == 0 then break end
      i, old = i + 1, old + 1
    end
    if new ~= old then write('INCRBY', KN, old - new) end
    if old > 0 then tellFree() end
    return
  end
  local h = holder(id)
  if was == h .. ':write' then -- a downgrade
    write('HDEL', KN, was)
    was, writes, freed = false, false, 'write'
  elseif was == h then -- a mutex that becomes a reader
    write('HDEL', KN, was)
    was, freed = false, 'write'
  end
  if call('HEXISTS', KN, h) == 0 then write('HSET', KN, 'mode', 'read', h, 1) end
  write('SET', slot(h, 1), 1, 'PX', fmt('%.0f', max(math.ceil((till - now) / 1000), 1)))
  lasts(till)
end

local function loseHold(id)
  if st == 'P' then
    if PLAIN then
      local n = num(call('HGET', KM, 'n' .. id) or 0)
      if n > 0 then
        write('INCRBY', KN, n)
        write('HDEL', KM, 'n' .. id)
        tellFree()
      end
      return
    end
    local _, _, _, _, n = getHold(id)
    local old = 0
    for _, p in ipairs(permits(id, 1, n or 0)) do old = old + write('ZREM', suffixed('timeout'), p) end
    if old > 0 then
      write('INCRBY', KN, old)
      tellFree()
    end
    return
  end
  local h = holder(id)
  if unlike(typeOf()) ~= 'hash' or write('HDEL', KN, h) == 0 then return end
  write('DEL', slot(h, 1))
  freed = 'read'
  if call('HLEN', KN) <= 1 then
    write('DEL', KN)
    return
  end
  -- KN lasts as long as the reader that lasts longest.
  local longest, all = 0, call('HGETALL', KN)
  for i = 1, #all, 2 do
    for j = 1, num(all[i + 1]) or 0 do longest = max(longest, call('PTTL', slot(all[i], j))) end
  end
  if longest > 0 and longest < call('PTTL', KN) then write('PEXPIRE', KN, longest) end
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
-- strangers reports whether more listen to a channel at this server than sessions of ours. Servers
-- before Redis 7 have no sharded channels.
local function strangers(channel)
  local n = call('PUBSUB', 'NUMSUB', channel)[2]
  local shard = CLUSTER and redis.pcall('PUBSUB', 'SHARDNUMSUB', channel)
  if shard and not shard.err then n = max(n, shard[2]) end
  return n > call('ZCOUNT', attendants(), fmt('%.0f', now), '+inf')
end

-- channelOf returns the channel on which the end of a lock is announced.
local function channelOf(what)
  return prefixed(what == 'lock' and 'redisson_lock__channel' or 'redisson_rwlock')
end

-- A name that our waiters hand on among themselves would never be free for Redisson's clients. So now
-- and then it is free for all, and for GRACE our own waiters leave it to them. If nobody took it, it is
-- free half as often from then on. m has three numbers: j, how often in a row it was handed on; w, how
-- often in a row nobody took it; y, until when it is left alone.
local GRACE = 25000

local function yields()
  if FAIR or not freed then return false end
  local times, wasted = write('HINCRBY', KM, 'j', 1), call('HGET', KM, 'w')
  if times <= 3 * 2 ^ num(wasted or 0) then return false end
  if not strangers(channelOf(freed)) then
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
    if t ~= 'string' then return false end
    reclaim()
    return num(call('GET', KN)) >= n
  end
  if t == 'none' then return yielded() == 0 and (mode == 's' or n ~= 1 or may(id)) end
  if t == 'hash' and not was then taken() end
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

-- conflict also makes a semaphore of Redisson one of ours, or creates it.
local function conflict(mode, n, limit_)
  local t = unlike(typeOf())
  if mode ~= 'p' then
    if t == 'string' then return 'it is a semaphore or latch of Redisson' end
    if t == 'hash' and st == 'F' then
      local rw = call('HGET', KN, 'mode')
      if mode == 'x' and n == 1 and rw then return 'it is a read/write lock of Redisson' end
      if (mode == 's' or n == 2) and not rw then return 'it is a lock of Redisson' end
    end
    return
  end
  if t == 'hash' then return 'it is a lock of Redisson' end
  if st ~= 'F' and st ~= 'P' or st == 'F' and t == 'none' and limit_ == 0 then return end
  if t == 'none' then
    write('SET', KN, fmt('%.0f', limit_ > 0 and limit_ or limit))
    tellFree()
  end
  if st == 'F' then
    forget()
    st, used, count, set, dirty = 'P', 0, 0, true, true
  end
  limit = total() or limit_ > 0 and limit_ or limit > 0 and limit or 2 ^ 30
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
local function tokenOf(id)
  local v = typeOf() == 'hash' and not find(id, ':write$') and call('HGET', KN, 'mode') == false and redis.pcall('GET', prefixed('redisson_lock_token'))
  return type(v) == 'string' and num(v) or num(sub(redis.sha1hex(KN .. ' ' .. id), 1, 13), 16)
end

local function hex(s)
  return (string.gsub(s, '.', function(c) return fmt('%02x', string.byte(c)) end))
end

-- each calls visit with the ID of each grant of Redisson, its mode, and when it ends in milliseconds
-- from now, until visit returns true.
local function each(visit)
  local t = typeOf()
  if t == 'hash' then
    local mine, all, ms = mineOf(), call('HGETALL', KN), call('PTTL', KN)
    for i = 1, #all, 2 do
      local f, left, mode = all[i], ms, 'x'
      if f ~= 'mode' and not mine[f] then
        for j = 1, num(all[i + 1]) or 0 do
          local p = call('PTTL', slot(f, j))
          if p > 0 then left, mode = j == 1 and p or max(left, p), 's' end
        end
        if visit(f, mode, left) then return true end
      end
    end
  elseif t == 'string' and not PLAIN and (st == 'P' or st == 'F') then
    local mine, all = mineOf(), call('ZRANGE', suffixed('timeout'), 0, -1, 'WITHSCORES')
    for i = 1, #all, 2 do
      local left = num(all[i + 1]) - floor(now / 1000)
      if not mine[all[i]] and left > 0 and visit(all[i], 'p', left) then return true end
    end
  end
end

local function others(most)
  local all = {}
  if most == 0 then return all end
  each(function(id, mode, left)
    local name = mode == 'p' and hex(id) or id
    local info = cjson.encode({prog = 'Redisson', note = name})
    all[#all + 1] = {name, mode, 1, tokenOf(id), 0, max(left, 0) * 1000, 0, info}
    return #all >= most
  end)
  return all
end

local function othersLeft()
  local least
  each(function(_, _, left)
    if left > 0 and (not least or left < least) then least = left end
  end)
  if least then return least * 1000 end
  return max(yielded(), aheadLeft() * 1000)
end

local function breakOther(token)
  return each(function(id, mode)
    if tokenOf(id) ~= token then return false end
    if mode == 'p' then
      write('ZREM', suffixed('timeout'), id)
      write('INCRBY', KN, 1)
      tellFree()
      return true
    end
    freed = mode == 's' and 'read' or find(id, ':write$') and 'write' or 'lock'
    local n = num(call('HGET', KN, id)) or 0
    write('HDEL', KN, id)
    for j = 1, mode == 's' and n or 0 do write('DEL', slot(id, j)) end
    if freed ~= 'lock' and call('HLEN', KN) <= 1 then write('DEL', KN) end
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
    write('SET', KN, fmt('%.0f', n - used))
  elseif PLAIN and not (st == 'P' and set) then
    return 'it is an RSemaphore, which does not tell how many permits it has'
  else
    write('INCRBY', KN, fmt('%.0f', n - (total() or limit)))
  end
  tellFree()
end

local latchChannel = 'redisson_countdownlatch__channel__{'

-- knowLatch makes a latch of Redisson one of ours. It returns a text if the name is something else.
local function knowLatch()
  local t = unlike(typeOf())
  if t == 'hash' and st == 'F' then return 'it is a lock of Redisson' end
  if t == 'string' and st == 'F' then
    forget()
    st, count, dirty = 'L', num(call('GET', KN)) or 0, true
  end
end

local function setLatch()
  if count > 0 then
    write('SET', KN, fmt('%.0f', count))
    tell(latchChannel .. KN .. '}', 1)
  end
end

local function countLatch()
  count = write('DECR', KN)
  if count > 0 then return end
  count = 0
  write('DEL', KN)
  tell(latchChannel .. KN .. '}', 0)
end

-- Redisson announces that a latch is gone as if it were a new one, so its waiters wait for ever. As
-- at zero, they go on.
local function removeLatch()
  write('DEL', KN)
  tell(latchChannel .. KN .. '}', 0)
end

-- recordLife returns how many microseconds the record lives at least: of an RSemaphore nothing else
-- knows what our holders have.
local function recordLife()
  return PLAIN and st == 'P' and count > 0 and 30 * 86400000000 or 0
end

local function announce()
  if freed then
    local t = typeOf()
    if t == 'none' and FAIR and freed == 'lock' then
      tellNext()
    elseif t == 'none' then
      tell(channelOf(freed), freed == 'write' and 1 or 0)
    elseif freed == 'write' and t == 'hash' and call('HGET', KN, 'mode') == 'read' then
      tell(channelOf(freed), 1) -- Redisson's readers may enter
    end
    freed = false
  elseif vacated and typeOf() == 'none' then
    tellNext()
  end
  vacated = false
  for channel, n in pairs(news or {}) do
    call('PUBLISH', channel, n)
    if CLUSTER then redis.pcall('SPUBLISH', channel, n) end -- unknown before Redis 7
  end
  news = nil
end

