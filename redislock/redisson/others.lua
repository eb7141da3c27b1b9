-- Redisson's holders, for people.

-- mineOf returns the fields or permits of our own grants in Redisson's keys.
local function mineOf()
  local mine = {}
  if was then mine[was] = true end
  if count > 0 and (st == 'S' or st == 'P') then
    for _, h in ipairs(call('ZRANGEBYSCORE', KZ, '-inf', 0)) do
      local id = sub(h, 2)
      local _, _, _, _, n = getHold(id)
      if st == 'S' then mine[holder(id)] = true end
      for _, p in ipairs(st == 'P' and permits(id, 1, n or 0) or {}) do mine[p] = true end
    end
  end
  return mine
end

-- tokenOf returns the number under which an operator breaks a grant of Redisson: its fencing token,
-- or a number made of its ID.
local function tokenOf(id, what)
  local v = what == 'lock' and redis.pcall('GET', prefixed('redisson_lock_token'))
  if type(v) == 'string' and find(v, '^%d+$') and num(v) <= num(MAXTOKEN) then return num(v) end
  return num(sub(redis.sha1hex(KN .. ' ' .. id), 1, 13), 16)
end

local function hex(s)
  return (string.gsub(s, '.', function(c) return fmt('%02x', string.byte(c)) end))
end

-- each calls visit with the ID of each grant of Redisson, what it is, how many locks it has taken, and
-- when it ends in milliseconds from now, until visit returns true.
local function each(visit)
  local t = typeOf()
  if t == 'hash' then
    local mine, all, ms = mineOf(), call('HGETALL', KN), call('PTTL', KN)
    local rw = call('HGET', KN, 'mode')
    for i = 1, #all, 2 do
      check(all[i], all[i + 1])
      local f, n, left = all[i], num(all[i + 1]) or 0, ms
      if f ~= 'mode' and not mine[f] then
        local what = not rw and 'lock' or find(f, ':write$') and 'write' or 'read'
        if what == 'read' then left = slotsLast(f, n) end
        if visit(f, what, n, left) then return true end
      end
    end
  elseif t == 'string' and not PLAIN and (st == 'P' or st == 'F') then
    local mine, all = mineOf(), call('ZRANGE', zset(), 0, -1, 'WITHSCORES')
    for i = 1, #all, 2 do
      local left = num(all[i + 1]) - floor(now / 1000)
      if not mine[all[i]] and left > 0 and visit(all[i], 'permits', 1, left) then return true end
    end
  end
end

local letters = {lock = 'x', write = 'x', read = 's', permits = 'p'}

-- bounded turns milliseconds into microseconds. What never ends has 0, as what is not known.
local function bounded(ms)
  return ms >= 0 and ms < 2 ^ 40 and max(ms, 1) * 1000 or 0
end

local function others(most)
  local all = {}
  if most == 0 then return all end
  each(function(id, what, _, left)
    local name = what == 'permits' and hex(id) or id
    local info = cjson.encode({prog = 'Redisson', note = name})
    all[#all + 1] = {name, letters[what], 1, tokenOf(id, what), 0, bounded(left), 0, info}
    return #all >= most
  end)
  if st == 'F' and all[1] and all[1][2] == 'p' then limit = total() end -- a semaphore that no record knows
  return all
end

local function othersLeft()
  if typeOf() == 'hash' then return bounded(call('PTTL', KN)) end
  local left = 0
  if st == 'P' and not PLAIN then
    local ms = floor(now / 1000)
    local next_ = call('ZRANGEBYSCORE', zset(), '(' .. fmt('%.0f', ms), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
    left = next_ and bounded(num(next_) - ms) or 0
  end
  local rest = yielded()
  if rest > 0 then return rest end
  return max(left, aheadLeft() * 1000)
end

local function breakOther(token)
  return each(function(id, what, n)
    if tokenOf(id, what) ~= token then return false end
    if what == 'permits' then
      add(write('ZREM', zset(), id))
    elseif what == 'read' then
      leave(id, n)
    else
      freed = what
      write('HDEL', KN, id)
      if what == 'write' and call('HLEN', KN) == 1 then
        write('DEL', KN)
      elseif what == 'write' then
        write('HSET', KN, 'mode', 'read') -- the writer reads, too
      end
    end
    return true
  end) or false
end
