-- Describes a name. KEYS: l, z, m, t. ARGV[1]: how many waiters to list. Answers {state (Ps: P with a
-- limit that is set), limit, count, last token, length of the queue, holders, waiters}; a holder or
-- waiter is {id, mode, n, token, age, left, kept, info}.
--
-- A server that takes no writes answers with its data: it leaves out what has expired, and hands
-- nothing over.

needed = true
local looking -- nothing may be written

local function describe()
  local holders, places, alive = {}, {}, 0
  if st == 'X' and looking and exp <= now and keep <= now then
    st = 'S'
  elseif st == 'X' then
    local id, p = field(tail, 1)
    local _, q = field(tail, p)
    holders[1] = {id, 'x', 1, last, now - since, retry(), exp <= now and 1 or 0, sub(tail, q)}
  elseif count > 0 and st ~= 'L' then
    for _, h in ipairs(call('ZRANGEBYSCORE', KZ, '-inf', 0)) do
      local t, e, k, s, n, o = getHold(sub(h, 2), not looking) -- a script may have failed halfway; see repair
      if t and (e > now or k > now) then
        local _, q = field(o, 1)
        holders[#holders + 1] = {sub(h, 2), st, n, t, now - s, (e > now and e or k) - now, e <= now and 1 or 0, sub(o, q)}
      end
    end
  end
  if line then
    -- Expired places may be anywhere in the queue.
    for _, w in ipairs(call('ZRANGEBYSCORE', KZ, 1, LINE, 'LIMIT', 0, looking and -1 or ARGV[1])) do
      local d, s, _, m, n, o = getPlace(sub(w, 2))
      if d and not (looking and d <= now) then
        alive = alive + 1
        if alive <= num(ARGV[1]) then
          local _, q = field(o, 1)
          places[alive] = {sub(w, 2), m, n, 0, now - s, d - now, 0, sub(o, q)}
        end
      end
    end
  end
  local used_as = set and 'Ps' or st -- st is what save writes
  if looking and st ~= 'L' and not set and #holders + #places == 0 then used_as = 'F' end
  for _, h in ipairs(others(num(ARGV[1]))) do
    holders[#holders + 1] = h
    if used_as == 'F' then used_as = h[2] == 'p' and 'P' or 'X' end
  end
  return {used_as, limit, count, last, looking and alive or waiters(), holders, places}
end

local function look()
  load(KEYS[1], KEYS[2], KEYS[3], KEYS[4])
  if not looking then advance() end
  local answer = describe()
  if not looking then save() end
  return answer
end

local done, answer = pcall(look)
if done or sub(failure(answer).err, 1, 8) == 'DAMAGED ' then return done and answer or failure(answer) end
looking, write = true, function() end
return look()
