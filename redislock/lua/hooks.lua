-- What the scripts of a member of a quorum do otherwise: see member_hooks.lua, which has the same functions.

-- propose notes which token the caller would like the next grant to have.
local function propose() end

-- agreed returns the token of a new grant, as a number or 16 digits. token is the least that it may be.
local function agreed(token) return token end

-- same reports whether the owner of a grant, which knows it by token, means the one whose token is has.
local function same(has, token) return has == token end

-- place returns what the answer to a waiter says of its place in line beside: nothing.
local function place() end

-- stamp returns what follows a token that is published.
local function stamp() return '' end
