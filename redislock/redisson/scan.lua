-- Looks for names in use among some keys of a server. KEYS[1] leads to the server. ARGV: the cursor;
-- how many keys to look at; what the keys of records begin with. Answers {the next cursor, names}.

local call, sub, find = redis.call, string.sub, string.find
local own, found = ARGV[3], {}

-- record returns the name that a key of ours is about.
local function record(key)
  local tag = find(key, '}', #own + 1, true)
  if tag and find(key, '^[lm]:', tag + 2) then return sub(key, tag + 4) end
end

-- lock reports whether a hash looks like a lock of Redisson.
local function lock(key)
  local some = call('HSCAN', key, 0, 'COUNT', 16)[2]
  for i = 1, #some, 2 do
    local f, v = some[i], some[i + 1]
    local is = f == 'mode' and (v == 'read' or v == 'write')
      or find(f, '^%x+%-%x+%-%x+%-%x+%-%x+:') and find(v, '^%d+$')
    if not is then return false end
  end
  return #some > 0
end

local page = call('SCAN', ARGV[1], 'COUNT', ARGV[2])
for _, key in ipairs(page[2]) do
  if sub(key, 1, #own) == own then
    found[#found + 1] = record(key)
  else
    local t = call('TYPE', key).ok
    if t == 'hash' and lock(key) then
      found[#found + 1] = key
    elseif t == 'zset' and sub(key, -8) == ':timeout' and find(key, '{', 1, true) then
      -- The permits of an RPermitExpirableSemaphore. Braces that Redisson added are no part of the name.
      local name = sub(key, 1, -9)
      if sub(name, 1, 1) == '{' and find(name, '}', 1, true) == #name then name = sub(name, 2, -2) end
      found[#found + 1] = name
    end
  end
end
return {page[1], found}
