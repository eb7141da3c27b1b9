-- Functions that a member of a quorum has differently: member_hooks.lua has the same ones.

-- propose takes the token that the caller proposes for the next grant.
local function propose() end

-- agreed returns the token of a new grant, as a number or 16 digits. token is the least that is
-- allowed.
local function agreed(token) return token end

-- same reports whether has is the token of the grant that its owner knows under token.
local function same(has, token) return has == token end

-- place returns what an answer to a waiter adds about its place: nothing.
local function place() end

-- stamp returns what a message adds to a token: nothing.
local function stamp() return '' end
