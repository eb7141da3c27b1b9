-- Ends a script of a member of a quorum, whose text is the function answer. It answers {the clock, its
-- answer}: whoever asks sees whether the clock was set.

local t = redis.call('TIME')
local a = answer()
if type(a) == 'table' and a.err then return a end
return {t[1] * 1000000 + t[2], a}
