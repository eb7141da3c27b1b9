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

-- When a script starts Lua makes its functions, and searches for each local that a function shares
-- with the one around it. What that one shares with the outside is found at once. So what many
-- functions share is here, and they are made inside of another; see body in scripts.go.

local call, sub, find, num = redis.call, string.sub, string.find, tonumber
local fmt, floor, max = string.format, math.floor, math.max

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local KL, KZ, KM, KT                    -- the keys of the name at hand
local st, line, last, fresh, dirty      -- state, somebody waits, last token, l was missing, l must be written
local exp, keep, since, tail            -- X: the one hold
local used, count, limit                -- S, P: the group (of permits or readers); L: count
local reach                             -- the latest time that what was written here must outlast
local guarded                           -- z and m have a member that keeps them
local stored, marked                    -- l exists; it has the mark
local queue                             -- what save tells
local wrote                             -- the script has written something
local needed                            -- it must succeed although the server's memory is full

-- One zset serves three purposes, in bands of scores that do not meet: the ends of holds
-- (microseconds - SHIFT: negative), the line (1, 2, 3... up to LINE), the deadlines of places
-- (microseconds: above LINE).
local SHIFT = 9007199254740992

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
