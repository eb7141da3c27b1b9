-- Functions that a member of a quorum has differently: member_hooks.lua has the same ones.

-- propose takes the token that the caller proposes for the next grant.
local function propose() end

-- agreed returns the token of a new grant, as a number or 16 digits. token is the least that is
-- allowed.
local function agreed(token) return token end

-- either returns the token of a grant that may take a block. all is the least that it can have with the
-- whole block, one is that with one token only. An even token says that the grant has all of them, an odd
-- one that it has no other: see driver.Request.Granted. After a failover that has lost the last grants,
-- the new server's clock must have passed their tokens. So a block ends at most AHEAD after the clock. A
-- single token may be later: an exchange takes longer than the two microseconds that it adds.
local function either(all, one, now)
  all = all + all % 2
  if all <= now + AHEAD then return all end
  return one + 1 - one % 2
end

-- same reports whether has is the token of the grant that its owner knows under token.
local function same(has, token) return has == token end

-- regains reports whether a request may have a kept name again. exp is when its lease ended; 0: it was
-- released.
local function regains() return false end

-- place returns what an answer to a waiter adds about its place: nothing.
local function place() end

-- stamp returns what a message adds to a token: nothing.
local function stamp() return '' end
