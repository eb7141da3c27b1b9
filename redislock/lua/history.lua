-- Reads a history; see layout.go. KEYS: h. ARGV[1]: how many entries at most, the newest. Answers
-- {text, score, text, score..., the server's clock}, oldest first, or {} if there is none.

local all = redis.pcall('ZRANGE', KEYS[1], -ARGV[1], -1, 'WITHSCORES')
if all.err then
  if string.find(all.err, 'WRONGTYPE', 1, true) then all.err = 'DAMAGED ' .. KEYS[1] .. ': it is not a history' end
elseif #all > 0 then
  local t = redis.call('TIME')
  all[#all + 1] = t[1] * 1000000 + t[2]
end
return all
