-- What Redisson's waiters are told, and who listens there.

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
  local oldest = call('ZRANGE', u, 0, 1, 'WITHSCORES') -- so sessions that are gone do not become many
  for i = 1, #oldest, 2 do
    if num(oldest[i + 1]) <= now or not subscribed(oldest[i]) then write('ZREM', u, oldest[i]) end
  end
end
