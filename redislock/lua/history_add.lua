-- Adds an entry to a history; see layout.go. KEYS: h. ARGV: the text, how many entries stay, how long
-- the history lives in milliseconds. A text that the history has already is not added again.

local h, keep, time = KEYS[1], tonumber(ARGV[2]), redis.call('TIME')
local last = redis.pcall('ZRANGE', h, -1, -1, 'WITHSCORES')
if last.err then
  if string.find(last.err, 'WRONGTYPE', 1, true) then last.err = 'DAMAGED ' .. h .. ': it is not a history' end
  return last
end
local ms = time[1] * 1000 + math.floor(time[2] / 1000)
if last[2] then ms = math.max(ms, math.floor(last[2] / 1000) + 1) end -- the clock may have been set back
local score = ms * 1000 + keep - 1
if score > tonumber(MAXTOKEN) then return {err = 'DAMAGED ' .. h .. ': no time is later than that of its last entry'} end
local added = redis.pcall('ZADD', h, 'NX', string.format('%.0f', score), ARGV[1])
if type(added) == 'table' then return added end -- refused: the first write
redis.call('PEXPIRE', h, ARGV[3])
local many = added == 1 and redis.call('ZCARD', h) - keep or 0
if many > 0 then
  for _, text in ipairs(redis.call('ZRANGE', h, 0, many - 1)) do redis.call('ZREM', h, text) end
end
return 0
