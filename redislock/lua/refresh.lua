-- Renews grants and places of any kind; those of one name at little cost if they follow
-- each other. KEYS: l, z, m, t of each. ARGV[1]: TTL in microseconds. ARGV[2...]: of each its
-- token (16 digits, 0: a place), its id. Answers the news, five numbers for each: position
-- (from 1), state, token, retry, ahead; the states are those of package driver.

local ttl, news = num(ARGV[1]), {}
local function report(...)
  for _, x in ipairs({...}) do news[#news + 1] = x end
end
for i = 1, #ARGV - 1 do
  local token, id = num(sub(ARGV[i + 1], 1, 16)), sub(ARGV[i + 1], 17)
  if KEYS[4 * i - 3] ~= KL then
    save()
    load(KEYS[4 * i - 3], KEYS[4 * i - 2], KEYS[4 * i - 1], KEYS[4 * i])
    advance()
  end
  local held -- the token of id's grant that stands
  if st == 'X' then
    if exp > now and field(tail, 1) == id and (token == 0 or same(last, token)) then
      held, exp, dirty = last, now + ttl, true
    end
  elseif count > 0 and st ~= 'L' then
    local t, e, k, s, n, o = getHold(id)
    if t and e > now and (token == 0 or same(t, token)) then
      held, dirty = t, true
      putHold(id, t, now + ttl, k, s, n, o)
    end
  end
  if held then
    if token == 0 then report(i, 2, held, 0, 0) end
  elseif token ~= 0 then
    report(i, 1, 0, 0, 0)
  else
    local d, s, h, m, n, o
    if line then d, s, h, m, n, o = getPlace(id) end
    if d then
      putPlace(id, now + ttl, s, h, m, n, o)
      dirty = true
      report(i, 3, 0, retry(), ahead(id))
    else
      report(i, 1, 0, 0, 0)
    end
  end
end
save()
return news
