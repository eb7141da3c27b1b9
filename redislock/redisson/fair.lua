-- Functions for the queue of an RFairLock, which Redisson keeps as a list of clients, each with a time.
-- The first of them is waited for until its time. The time of each includes how long all before it may
-- be waited for: when a client leaves, it subtracts its own share from the times of those behind it.
-- FAIR: a mutex is an RFairLock. WAIT: for how many milliseconds a waiter of ours is waited for without
-- a sign of life.

-- queues reports whether a request of ours has a place in that queue while it waits: readers have none, nor
-- have writers of an RReadWriteLock.
local function queues(mode, n) return FAIR and mode == 'x' and n == 1 end

local function queue() return prefixed('redisson_lock_queue'), prefixed('redisson_lock_timeout') end

-- first returns the first client in the queue, and until when it is waited for, in milliseconds. Those
-- before it whose time is over leave. Redisson would wait for ever for one without a time.
local function first()
  local q, z = queue()
  while true do
    local h = call('LINDEX', q, 0)
    if not h then return end
    local till = num(call('ZSCORE', z, h) or '')
    if not till then
      till = floor(now / 1000) + WAIT
      write('ZADD', z, fmt('%.0f', till), h)
    end
    if till * 1000 > now then return h, till end
    write('ZREM', z, h)
    write('LPOP', q)
    vacated, nearest = true, nil
  end
end

-- ours returns the waiter of ours that Redisson knows as h.
local function ours(h) return h and call('HGET', KM, 'f' .. h) end

-- may reports whether a request for a mutex is next. id: it is in the queue.
local function may(id)
  if not FAIR then return true end
  local h = first()
  return not h or id and h == holder(id)
end

local function nextOf(id)
  if not FAIR or ours(holder(id)) ~= id then return id end
  return ours((first())) or id
end

-- before returns the nearest client of Redisson before a waiter of ours. It looks at the queue once for
-- all waiters: there may be hundreds.
local function before(h)
  if not nearest then
    local last
    nearest = {}
    for _, other in ipairs(call('LRANGE', (queue()), 0, -1)) do
      if ours(other) then nearest[other] = last else last = other end
    end
  end
  return nearest[h]
end

-- signOfLife gives a waiter of ours its time, from the sign of life on, or from the time of the nearest
-- client of Redisson before it. The shares of such clients began when they came. So they shrink while
-- all wait, but when a client leaves, it subtracts its whole share. What has gone by is added for that.
local function signOfLife(z, h, joined)
  local ms, other = floor(now / 1000), before(h)
  local till = ms + WAIT
  if other then till = max(ms, num(call('ZSCORE', z, other) or 0)) + max(ms - floor(joined / 1000), 0) + WAIT end
  write('ZADD', z, fmt('%.0f', till), h)
end

local function stay(id, mode, n, owner, joined)
  if not queues(mode, n) then return attend(field(owner, 1)) end
  local h, q, z = holder(id), queue()
  write('HSET', KM, 'f' .. h, id)
  if not call('LPOS', q, h) then
    -- Redisson waits for ever for a place without a time, so the time comes first.
    write('ZADD', z, fmt('%.0f', floor(now / 1000) + WAIT), h)
    write('RPUSH', q, h)
    nearest = nil
  end
  signOfLife(z, h, joined)
end

-- depart takes a waiter of ours out of the queue, and reports whether it was there. The times of those
-- behind it stay: nearly nothing of it is in them. If the script fails halfway, the field of m tells the
-- next one that the place is ours, or that a time without a place is.
local function depart(id)
  local h, q, z = holder(id), queue()
  if not ours(h) then return false end
  write('LREM', q, 1, h)
  write('ZREM', z, h)
  write('HDEL', KM, 'f' .. h)
  vacated, nearest = true, nil
  return true
end

local function beat(id)
  if not FAIR then return true end
  local h, _, z = holder(id), queue()
  local _, joined = getPlace(id)
  if not joined or not call('ZSCORE', z, h) then return false end
  signOfLife(z, h, joined)
  return true
end

-- aheadLeft returns for how many milliseconds the first client of Redisson is still waited for.
local function aheadLeft()
  if not FAIR then return 0 end
  local h, till = first()
  if not h or ours(h) then return 0 end
  return max(till - floor(now / 1000), 1)
end

-- tellNext announces to the first client of Redisson that it is next.
local function tellNext()
  local h = FAIR and first()
  if h and not ours(h) then tell(prefixed('redisson_lock__channel') .. ':' .. h, 0) end
end

