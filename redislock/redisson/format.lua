-- The keys of Redisson beside the record of a name: our own grants in them. This file and those that
-- follow it (messages, fair, turns, others, changes) take the place of lua/format.lua of package
-- redislock. FENCED: a mutex is an RFencedLock. PLAIN: a semaphore is an RSemaphore.

local KN         -- Redisson's key of the name: the name itself
local was        -- the field of our exclusive grant in KN
local writes     -- our exclusive grant is a write lock of an RReadWriteLock, else an RLock
local freed      -- what this script has taken from KN: lock, read, write
local more       -- a semaphore may have more free permits than before
local news       -- the number to announce of a latch
local counted    -- the name was a semaphore when it was loaded
local vacated    -- a waiter has left the queue of an RFairLock
local nearest    -- by waiter of ours there: the nearest client of Redisson before it; nil: not looked for

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

-- number reads a number of Redisson: an integer as Redis writes it, small enough for Lua and for
-- our records.
local function number(v)
  local n = (v == '0' or find(v, '^%-?[1-9]%d*$')) and num(v)
  if not n or math.abs(n) > num(MAXTOKEN) then
    damaged(KN, 'it is no lock of Redisson, but a string that is no number')
  end
  return n
end

local function free() return number(call('GET', KN) or '0') end

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
      sum, args = sum + (write(command, key, unpack(args)) or 0), {} -- nil: see inspect.lua
    end
  end
  return sum
end

-- create makes the key of a semaphore that was evicted or deleted, or was never there. back: how many of
-- the permits in use are given back.
local function create(back)
  local held = PLAIN and used - (back or 0) or call('ZCARD', zset())
  write('SET', KN, fmt('%.0f', max(limit - held, 0)))
  more = true
end

-- add gives n permits back that are in no other key any more. It comes last: a script that fails before
-- it makes permits fewer, never more.
local function add(n)
  if n == 0 then return end
  local known = not PLAIN or limit < 2 ^ 30 -- a limit that high is none
  if known and call('EXISTS', KN) == 0 then create(n) else write('INCRBY', KN, fmt('%.0f', n)) end
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
  was, writes, freed, more, news, vacated, nearest = false, false, false, false, nil, false, nil
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
    local n = max(free(), 0) -- a record has no number below zero
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

-- check ends the script if a field of KN is none of a lock of Redisson: the hash is somebody's data.
local function check(f, v)
  local is = f == 'mode' and (v == 'read' or v == 'write')
    or find(f, '^%x+%-%x+%-%x+%-%x+%-%x+:') and find(v, '^%d+$')
  if not is then damaged(KN, 'it is no lock of Redisson, but a hash with other fields') end
end

-- fields returns some fields of the hash KN with their values, when it has checked them. HSCAN may find none.
local function fields()
  local some = call('HSCAN', KN, 0, 'COUNT', 16)[2]
  for i = 1, math.min(#some, 32), 2 do check(some[i], some[i + 1]) end
  return some
end

-- hashed describes the hash KN to a request that wants no lock.
local function hashed()
  fields()
  return 'it is a lock of Redisson'
end

-- mend makes good what a script left in KN that failed halfway: a lock without an end gets one. It
-- returns true if there is no lock, because KN has no holder.
local function mend()
  local some = fields()
  if #some == 2 and some[1] == 'mode' and call('HLEN', KN) == 1 then -- HSCAN may see one field of many
    write('DEL', KN)
    return true
  end
  -- It may also see none.
  if #some > 0 and call('PTTL', KN) == -1 then write('PEXPIRE', KN, RETAIN) end
end
