-- Stands around a script of a member of a quorum, which then answers {the clock, its answer}: whoever
-- asks sees whether the clock was set.

local function answer()
--SCRIPT
end
local t = redis.call('TIME')
return {t[1] * 1000000 + t[2], answer()}
