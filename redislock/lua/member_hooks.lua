-- hooks.lua for a member of a quorum.

local want = 0 -- the proposed token, as 16 digits

local function propose(token) want = token end

-- A proposal that is too far ahead of the clock is ignored.
local function agreed(token, now)
  if tonumber(want) > tonumber(token) and want - now <= LEAD then return want end
  return token
end

-- A grant has its whole block: its owner knows only the largest of the tokens that the members gave.
local function either(all) return all end

-- A grant whose token was raised without its owner's knowledge still belongs to the owner.
local function same(has, token) return has >= token end

-- A member may have been cut off for longer than a lease. The request may have a majority all the time, and
-- nobody else can have the name here before its minimum hold is over.
local function regains(exp) return exp > 0 end

local function place(id) return id and redis.call('ZSCORE', KEYS[2], 'q' .. id) or '0' end

local function stamp(now) return string.format(' %.0f', now) end
