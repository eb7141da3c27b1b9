-- Ends a script of a member of a quorum, whose text is the function answer. Answers {the clock, the
-- script's answer}, so that the caller sees whether the clock was set.

local t = redis.call('TIME')
local a = answer()
if type(a) == 'table' and a.err then return a end
return {t[1] * 1000000 + t[2], a}
