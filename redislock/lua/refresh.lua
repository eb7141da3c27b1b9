-- Renews grants and places of any kind. Entries of one name should stand together: it is then read
-- and written once. KEYS: l, z, m, t of each. ARGV[1]: the session's TTL in microseconds, which is
-- the longest lease. ARGV[2...]: the token of each (16 digits, 0: a place), its lease in
-- microseconds (16 digits), its id. Answers the changes, five numbers for each: position
-- (from 1), state, token, retry, ahead. The states are those of package driver. For a hold that is
-- gone, the token gives the reason; see layout.go.

needed = true
local longest, changes, waits = num(ARGV[1]), {}, false
local function report(...)
  for _, x in ipairs({...}) do changes[#changes + 1] = x end
end

-- one renews the entry at position i.
local function one(i)
  local a = ARGV[i + 1]
  local token, lease, id = num(sub(a, 1, 16)), num(sub(a, 17, 32)), sub(a, 33)
  -- extended returns when a lease that would end at e ends now; see rule.extended.
  local function extended(e) return max(now + lease, math.min(e, now + longest)) end
  local gone = fresh and 1 or 0
  local held -- the token of id's unexpired grant
  if st == 'X' then
    if exp > now and field(tail, 1) == id and (token == 0 or same(last, token)) then
      held, exp, dirty = last, extended(exp), true
    end
  elseif count > 0 and st ~= 'L' then
    local t, e, k, s, n, o = grantOf(id)
    if t and e > now and (token == 0 or same(t, token)) then
      held, dirty = t, true
      putHold(id, t, extended(e), k, s, n, o)
    end
  end
  if held then
    -- A place that got the name. Or the token is not the grant's: then a member may have given it again.
    if held ~= token then report(i, 2, held, 0, 0) end
  elseif token ~= 0 then
    report(i, 1, gone, 0, 0)
  else
    local d, s, h, m, n, o
    if line then d, s, h, m, n, o = getPlace(id) end
    local before = d and ahead(id)
    if before then
      putPlace(id, extended(d), s, h, m, n, o)
      dirty = true
      waits = true
      report(i, 3, 0, retry(), before)
    else
      report(i, 1, gone, 0, 0)
    end
  end
end

-- name renews the entries at positions from to to, all of one name.
local function name(from, to)
  load(KEYS[4 * from - 3], KEYS[4 * from - 2], KEYS[4 * from - 1], KEYS[4 * from])
  advance()
  waits = false
  for i = from, to do one(i) end
  if waits then callBack() end
  save()
end

local from, had = 1, 0
for i = 1, #ARGV - 1 do
  if KEYS[4 * i + 1] ~= KEYS[4 * i - 3] then
    local done, e = pcall(name, from, i)
    if not done then
      e = failure(e)
      if sub(e.err, 1, 8) ~= 'DAMAGED ' then error(e) end
      for j = #changes, had + 1, -1 do changes[j] = nil end
      for j = from, i do report(j, 1, 2, 0, 0) end
      outbox, guarded = nil, false
    end
    from, had = i + 1, #changes
  end
end
return changes
