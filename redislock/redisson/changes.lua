-- Limits, latches, and what is announced when a script has written everything.

-- limitTo is SetLimit. It returns a text if the name is something else, or may be: a latch and an idle
-- semaphore look alike, and clients in Java would wait for ever for a latch that is gone.
local function limitTo(n)
  local t = unlike(typeOf())
  if t == 'hash' then return hashed() end
  if t == 'string' and st == 'F' and free() and call('ZCARD', zset()) == 0 then -- free: it is a number
    return 'it is a latch or a semaphore of Redisson, which look alike; if it is a semaphore, take a permit here first'
  end
  if n == 0 then
    if st == 'F' and t == 'string' then st, used, count, set, counted = 'P', 0, 0, true, true end
    return
  end
  if t == 'none' then
    if st == 'F' then become(n) end
    limit = n
    create()
  elseif PLAIN and not (st == 'P' and set and limit < 2 ^ 30) then -- that many: nobody has said how many
    return 'it is an RSemaphore, which does not tell how many permits it has'
  else
    write('INCRBY', KN, fmt('%.0f', n - (total() or limit)))
    more = true
  end
end

-- knowLatch makes a latch of Redisson one of ours. It returns a text if the name is something else.
local function knowLatch()
  local t = unlike(typeOf())
  if removed(t) then reuse() end
  if t == 'hash' and st == 'F' then return hashed() end
  if t == 'string' and st == 'F' then
    local n = free()
    if n < 0 or call('ZCARD', zset()) > 0 then return 'it is a semaphore of Redisson' end
    forget()
    st, count, dirty = 'L', n, true
  end
end

local function setLatch()
  if count > 0 then
    write('SET', KN, fmt('%.0f', count))
    news = 1
  end
end

local function countLatch()
  if count > 0 then
    write('DECR', KN)
  else
    write('DEL', KN)
    news = 0
  end
end

-- Redisson announces that a latch is gone as if it were a new one, so its waiters wait for ever. As
-- at zero, they go on.
local function removeLatch()
  write('DEL', KN)
  news = 0
end

-- recordLife returns how many microseconds the record lives at least. Nothing else knows that a semaphore
-- is none of Redisson's latches, nor what our holders have of an RSemaphore.
local function recordLife() return st == 'P' and 30 * 86400000000 or 0 end

local function announce()
  if freed or vacated then
    local t = typeOf()
    if t == 'none' and FAIR and freed ~= 'read' and freed ~= 'write' then
      tellNext()
    elseif t == 'none' and freed then
      tell(channelOf(freed), freed == 'write' and 1 or 0)
    elseif freed == 'write' and t == 'hash' and call('HGET', KN, 'mode') == 'read' then
      tell(channelOf(freed), 1) -- Redisson's readers may enter
    end
  end
  -- Nothing below 1 is announced for a semaphore: Redisson's waiters cannot take it.
  if more and free() > 0 then tell(channelOf('permits'), free()) end
  if news then tell('redisson_countdownlatch__channel__{' .. KN .. '}', news) end
  freed, more, news, vacated = false, false, nil, false
end
