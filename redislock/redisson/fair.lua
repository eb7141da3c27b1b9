-- Functions for the queue of an RFairLock, which Redisson keeps as a list of clients, with the time
-- until which the first of them is waited for. FAIR: a mutex is an RFairLock. WAIT: for how many
-- milliseconds a waiter of ours stays without a sign of life.

local vacated -- a waiter has left the queue

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

-- Readers are not in Redisson's queue, nor are writers of an RReadWriteLock.
local function nextOf(id)
  if not FAIR or ours(holder(id)) ~= id then return id end
  return ours((first())) or id
end

local function signOfLife() return fmt('%.0f', floor(now / 1000) + WAIT) end

local function stay(id, mode, n)
  if not FAIR or mode ~= 'x' or n ~= 1 then return end
  local h, q, z = holder(id), queue()
  if not call('LPOS', q, h) then write('RPUSH', q, h) end
  write('ZADD', z, signOfLife(), h)
  write('HSET', KM, 'f' .. h, id)
end

local function quit(id)
  if not FAIR then return end
  local h, q, z = holder(id), queue()
  if write('HDEL', KM, 'f' .. h) == 0 then return end
  local at = call('LPOS', q, h)
  if at then
    -- Redisson's clients behind it have added its time to theirs.
    for _, other in ipairs(call('LRANGE', q, at + 1, -1)) do
      if not ours(other) and call('ZSCORE', z, other) then write('ZINCRBY', z, -WAIT, other) end
    end
    write('LREM', q, 1, h)
  end
  write('ZREM', z, h)
  vacated = true
end

local function beat(id)
  if not FAIR then return true end
  local h, q, z = holder(id), queue()
  if not call('ZSCORE', z, h) then return false end
  write('ZADD', z, 'XX', signOfLife(), h)
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

