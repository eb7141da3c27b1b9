-- The functions of a Format, for a Backend that has none: no other library's keys are kept.
-- Package redisson has the others. See Format.

-- start begins with the name whose keys are KL, KZ and KM.
local function start() end

-- observe compares the record that was loaded with the other library's keys. An exclusive grant that
-- they do not have has ended. It returns true if they have none of a group's grants.
local function observe() end

-- settle makes the keys agree with the record as to the exclusive grant.
local function settle() end

-- present reports whether the keys have a group's grant, which ends at till.
local function present(id, n, till) return true end

-- keepHold gives a group's grant to the keys, with n permits, until till.
local function keepHold(id, n, till) end

-- loseHold takes a group's grant from the keys.
local function loseHold(id) end

-- admits reports whether the other library leaves room for a request. id: it is the next of the queue.
local function admits(mode, n, id) return true end

-- nextOf returns the waiter that is next, if the other library has a queue. id: the next one of ours.
local function nextOf(id) return id end

-- stay puts a waiter into the other library's queue, or keeps it there; quit takes it out. owner: as in
-- give; joined: when it came.
local function stay(id, mode, n, owner, joined) end
local function quit(id) end

-- beat keeps a waiter in the other library's queue, and reports whether it was there.
local function beat(id) return true end

-- yields reports whether the other library's waiters have a turn, so that nobody is handed the name.
local function yields() return false end

-- claim returns the token of a new grant. token is the least that is allowed.
local function claim(mode, n, token) return token end

-- conflict describes what the other library uses the name as, if the request wants something else.
local function conflict(mode, n, limit) end

-- others returns up to n holders of the other library, as inspect.lua describes them.
local function others(n) return {} end

-- othersLeft returns how many microseconds are left until one of them may end; 0: not known.
local function othersLeft() return 0 end

-- breakOther ends the grant of the other library that has this token, and reports whether there is
-- one.
local function breakOther(token) return false end

-- limitTo makes n the limit of a semaphore; 0: it is removed with the last user. It returns a text if
-- the other library uses the name as something else.
local function limitTo(n) end

-- knowLatch looks whether the other library has the latch. It returns a text as limitTo does.
local function knowLatch() end

-- setLatch creates a latch, countLatch takes one from the keys, removeLatch removes it.
local function setLatch() end
local function countLatch() end
local function removeLatch() end

-- recordLife returns how many microseconds the record lives at least.
local function recordLife() return 0 end

-- announce sends messages to the other library's waiters.
local function announce() end

