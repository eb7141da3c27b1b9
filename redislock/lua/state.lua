-- The record of one name, shared by the scripts. See layout.go for the keys and values.
--
-- A script calls load for a name, then advance (which ends what has expired), does its work, and
-- calls save. After that it must not read the name's keys. Nothing is written if nothing changed.
--
-- Redis does not undo what a script did before it failed. So (docs/adr/0010-tell-after-writing.md):
--   - save notifies waiters, after everything has been written.
--   - A mark in l stands while z and m change. A script that finds it repairs the name; see
--     unsettle.
--   - A member of z may lack its field in m, but no field of m its member in z.

-- When a script starts, Lua creates its functions. It searches the enclosing function for each
-- local that a function shares with it, but finds those from further outside at once. So shared
-- locals are here, and the functions are created inside another one; see body in scripts.go.

local call, sub, find, num = redis.call, string.sub, string.find, tonumber
local fmt, floor, max = string.format, math.floor, math.max

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local KL, KZ, KM, KT                    -- the keys of the current name
local st, line, last, fresh, dirty      -- state, there are waiters, last token, l was missing, l must be written
local exp, keep, since, tail            -- X: the one grant
local used, count, limit                -- S, P: the group (of permits or readers); L: count
local set                               -- P: an operator has set the limit, so it stays
local reach                             -- the latest time that the keys must outlast
local guarded                           -- z and m have a member that keeps them
local stored, marked                    -- l exists; it has the mark
local outbox                            -- messages that save sends
local wrote                             -- the script has written something
local needed                            -- it must succeed even if the server's memory is full

-- One zset serves three purposes, in separate ranges of scores: the ends of grants (microseconds -
-- SHIFT: negative), the queue (1, 2, 3... up to LINE), the deadlines of places (microseconds: above
-- LINE).
local SHIFT = 9007199254740992

-- damaged ends the script with an error about the name; see layout.go.
local function damaged(key, what)
  error({err = 'DAMAGED ' .. key .. ': ' .. what})
end

-- failure turns the error of a call into an answer.
local function failure(e)
  local text = type(e) == 'table' and e.err or tostring(e)
  if string.find(text, 'WRONGTYPE', 1, true) or string.find(text, 'value is not a', 1, true) then
    text = 'DAMAGED ' .. KL .. ': a key of the name has another type or value than scripts give it'
  end
  return {err = text}
end
