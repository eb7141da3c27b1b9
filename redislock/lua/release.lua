-- Ends a grant. KEYS: l, z, m, t. ARGV[1]: token, keep in microseconds (16 digits each).
-- ARGV[2]: the id with its length. Answers 0: done; 1: gone; 2: taken.

local a, v, sub = ARGV[1], redis.call('GET', KEYS[1]), string.sub
local zero = '0000000000000000'
if v and sub(v, 1, 18) == 'X1' .. sub(a, 1, 16) and sub(a, 17, 32) == zero
  and string.find(v, zero, 51, true) == 51 and string.find(v, ARGV[2], 83, true) == 83 then
  -- A mutex that somebody waits for: it goes to the first in line.
  local call, t = redis.call, redis.call('TIME')
  local now = t[1] .. sub('000000', #t[2] + 1) .. t[2]
  local token = now
  --HEAD
  local first = call('ZRANGE', KEYS[2], 0, 0)[1]
  local id = first and sub(first, 1, 1) == 'q' and sub(first, 2)
  local w = id and call('HGET', KEYS[3], 'w' .. id)
  if w and sub(v, 19, 34) + sub(v, 35, 50) > tonumber(now) and sub(w, 1, 16) > now and sub(w, 33, 49) == zero .. 'x'
    and token > sub(a, 1, 16) and sub(token, 1, 9) == sub(a, 1, 9) then
    -- As tell does it. What else is in line is asked before the first leaves it: see guard.
    local session, heard = sub(w, 62, 61 + tonumber(sub(w, 60, 61))), nil
    local others, message = call('ZCARD', KEYS[2]) > 2, id .. ' ' .. token --[[CLOCK]]
    local where = string.byte(session)
    if where == 43 then -- +
      heard = call('SPUBLISH', sub(KEYS[4], 1, -2) .. 's:' .. sub(session, 2), message) > 0
    elseif where == 45 then -- -
      call('PUBLISH', sub(KEYS[4], 1, -7) .. 's:' .. sub(session, 2), message)
      heard = true
    else
      heard = call('PUBLISH', sub(KEYS[4], 1, -7) .. 's:' .. session, message) > 0
    end
    if heard then
      call('ZREM', KEYS[2], first, 'w' .. id)
      call('HDEL', KEYS[3], 'w' .. id)
      -- The lease runs from the waiter's last sign of life; see advance.
      call('SET', KEYS[1], (others and 'X1' or 'X0') .. token .. sub(w, 1, 16) .. zero .. zero .. now
        .. string.format('%02d', #id) .. id .. sub(w, 60), 'KEEPTTL')
      return 0
    end
  end
end

--COMMON

local token, wish, id = num(sub(a, 1, 16)), num(sub(a, 17, 32)), field(ARGV[2], 1)
--RELEASE
load(KEYS[1], KEYS[2], KEYS[3], KEYS[4])
advance()
local mine, why = owned(id, token)
if not mine then
  save()
  return why
end
local stays
if st == 'X' then
  exp, keep, dirty = 0, max(keep, wish > 0 and now + wish or 0), true
  stays = keep > now
else
  local _, _, k, s, n, o = getHold(id)
  k = max(k, wish > 0 and now + wish or 0)
  stays = k > now
  if stays then
    putHold(id, token, 0, k, s, n, o)
    dirty = true
  else
    dropHold(id, n)
  end
end
advance()
if stays and line then -- the first in line must learn when to look again
  local first = head()
  local _, _, _, _, _, o = getPlace(first)
  tell(field(o, 1), first, 0)
end
save()
return 0
