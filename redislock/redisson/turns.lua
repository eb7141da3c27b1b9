-- Whose turn it is: whether a request of ours may be granted beside Redisson's holders and waiters.

-- strangers reports whether more listen to a channel at this server than sessions of ours. Sessions that
-- share a connection are one listener, so they may hide strangers. In a Cluster each session of ours is
-- subscribed twice, and a client in Java once, in one way or the other.
local function strangers(channel)
  local n = call('PUBSUB', 'NUMSUB', channel)[2]
  if CLUSTER then n = max(n, optional('PUBSUB', 'SHARDNUMSUB', channel)[2] or 0) end
  return n > call('ZCOUNT', attendants(), fmt('%.0f', now), '+inf')
end

-- A name that our waiters hand on among themselves would never be free for Redisson's clients. So now
-- and then it is free for all, and for GRACE our own waiters leave it to them. If nobody took it, it is
-- free half as often from then on. m has these numbers:
--   j  how often in a row it was handed on
--   w  how often in a row nobody took it, though strangers listened
--   x  the same without strangers: in a Cluster they may listen at another server
--   y  until when it is left alone
--   v  how many permits were free then, of an RSemaphore
local GRACE = 25000

local function yields()
  local what = more and 'permits' or freed
  if not what or FAIR and what == 'lock' or not more and typeOf() ~= 'none' then return false end
  local times = write('HINCRBY', KM, 'j', 1)
  if times <= 3 then return false end
  local count_ = strangers(channelOf(what)) and 'w' or 'x'
  if count_ == 'x' and not CLUSTER then return false end
  local wasted = num(call('HGET', KM, count_) or (count_ == 'w' and 0 or 4))
  if times <= 3 * 2 ^ wasted then return false end
  write('HSET', KM, 'j', 0, count_, math.min(wasted + 1, 12), 'y', fmt('%.0f', now + GRACE))
  if PLAIN and more then write('HSET', KM, 'v', fmt('%.0f', free())) end
  return true
end

-- yielded returns for how many microseconds the name is still left to Redisson's clients.
local function yielded()
  if not line then return 0 end
  local left = num(call('HGET', KM, 'y') or 0) - now
  return left > 0 and left <= GRACE and left or 0 -- more than GRACE: the clock was set back
end

-- When a name is left alone, one waiter of each session is woken, to ask when that is over. If it leaves
-- before, the others are told anew.
local function quit(id)
  if FAIR and depart(id) or yielded() == 0 then return end
  local _, _, _, mode, n = getPlace(id)
  if mode == 'p' then more = true else freed = mode == 's' and 'read' or n == 2 and 'write' or 'lock' end
end

-- taken notes that a client of Redisson has the name.
local function taken()
  if not line or call('HGET', KM, 'w') == '0' and call('HGET', KM, 'x') == '0' then return end
  write('HSET', KM, 'w', 0, 'x', 0, 'y', 0)
end

-- tookPermits reports whether Redisson's clients have permits. Those of an RSemaphore have no owners, but
-- while it is left alone only they take any.
local function tookPermits()
  if not PLAIN then return call('ZCARD', zset()) > used end
  local before = line and call('HGET', KM, 'v')
  if not before then return false end
  if yielded() == 0 then write('HDEL', KM, 'v') end
  return free() < num(before)
end

local function admits(mode, n, id)
  local t = unlike(typeOf())
  if mode == 'p' then
    if t == 'hash' then return false end
    if t == 'none' then create() end
    reclaim()
    if tookPermits() then taken() end
    return free() >= n and yielded() == 0
  end
  if t == 'none' or t == 'hash' and mend() then return yielded() == 0 and (mode == 's' or n ~= 1 or may(id)) end
  if not was and count == 0 and not queues(mode, n) then taken() end
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

-- removed reports whether nothing is left of a semaphore but its record: a client in Java has removed it, and
-- nobody here uses it. KN has the type t. reuse gives the name to another kind.
local function removed(t)
  return st == 'P' and t ~= 'string' and count == 0 and not line and call('ZCARD', zset()) == 0
end

local function reuse()
  forget()
  st, used, limit, set, dirty = 'F', 0, 0, false, true
end

-- become makes a name without a record a semaphore. The record is written before KN, which may be a latch
-- if nothing says that it is none.
local function become(limit_)
  forget()
  st, used, count, limit, set = 'P', 0, 0, limit_, true
  put()
  stored = true
end

-- conflict also makes a semaphore of Redisson one of ours, unless the request is refused: with another
-- limit it does not tell that the name is no latch and no number of another program.
local function conflict(mode, n, limit_)
  local t = unlike(typeOf())
  if mode ~= 'p' then
    if removed(t) then reuse() end
    if t == 'string' then
      free() -- it is a number
      return 'it is a semaphore or latch of Redisson'
    end
    if t == 'hash' and st == 'F' and not mend() then
      local rw = call('HGET', KN, 'mode')
      if mode == 'x' and n == 1 and rw then return 'it is a read/write lock of Redisson' end
      if (mode == 's' or n == 2) and not rw then return 'it is a lock of Redisson' end
    end
    return
  end
  if t == 'hash' then return hashed() end
  if t == 'string' then free() end -- it is a number
  if st ~= 'F' and st ~= 'P' or st == 'F' and t == 'none' and limit_ == 0 then return end
  local all = total() or limit > 0 and limit or limit_ > 0 and limit_ or 2 ^ 30
  if st == 'F' and limit_ > 0 and limit_ ~= all then
    return fmt('it is a semaphore of %.0f, or a latch or another program\'s number', all)
  end
  limit = all
  if st == 'F' then become(limit) end
end
