-- Collects what may explain that a name has no record; see missing.go. It writes nothing. KEYS: l, i,
-- h. ARGV[1]: the name. Answers {seconds since the server started; how many keys it has evicted; how
-- many times all data were removed; its limit of memory; memory in use; 1 if it has followed another
-- server; 1 if the name has a record again; 1 if the index has the name; the clock; the policy of
-- eviction; the score of the history's oldest entry, or ''}, or {} if the user may not ask for it.

local call, match, time = redis.pcall, string.match, redis.call('TIME')
local text = {}
for i, section in ipairs({'server', 'memory', 'stats', 'commandstats', 'replication'}) do
  text[i] = call('INFO', section)
  if type(text[i]) ~= 'string' then return {} end
end
text = table.concat(text)
local function number(pattern) return tonumber(match(text, pattern) or 0) end

local indexed, oldest = call('ZRANK', KEYS[2], ARGV[1]), call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')
return {
  tonumber(match(text, '\nuptime_in_seconds:(%d+)') or -1),
  number('\nevicted_keys:(%d+)'),
  number('\ncmdstat_flushall:calls=(%d+)') + number('\ncmdstat_flushdb:calls=(%d+)'),
  number('\nmaxmemory:(%d+)'),
  number('\nused_memory:(%d+)'),
  match(match(text, '\nmaster_replid2:(%x+)') or '', '[^0]') and 1 or 0,
  call('EXISTS', KEYS[1]) == 1 and 1 or 0,
  type(indexed) == 'number' and 1 or 0,
  time[1] * 1000000 + time[2],
  match(text, '\nmaxmemory_policy:(%S+)') or '',
  oldest[2] or '',
}
