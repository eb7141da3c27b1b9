-- Describes a name. KEYS: l, z, m, t. ARGV[1]: how many of the line to list. Answers {state,
-- limit, count, last token, length of the line, holders, waiters}; a holder or waiter is
-- {id, mode, n, token, age, left, kept, info}.

needed = true
load(KEYS[1], KEYS[2], KEYS[3], KEYS[4])
advance()
local holders, places = {}, {}
if st == 'X' then
  local id, p = field(tail, 1)
  local _, q = field(tail, p)
  holders[1] = {id, 'x', 1, last, now - since, retry(), exp <= now and 1 or 0, sub(tail, q)}
elseif count > 0 and st ~= 'L' then
  for i, h in ipairs(call('ZRANGEBYSCORE', KZ, '-inf', 0)) do
    local t, e, k, s, n, o = getHold(sub(h, 2), true)
    local _, q = field(o, 1)
    holders[i] = {sub(h, 2), st, n, t, now - s, (e > now and e or k) - now, e <= now and 1 or 0, sub(o, q)}
  end
end
if line then
  for _, w in ipairs(call('ZRANGEBYSCORE', KZ, 1, LINE, 'LIMIT', 0, ARGV[1])) do
    local d, s, _, m, n, o = getPlace(sub(w, 2))
    if d then
      local _, q = field(o, 1)
      places[#places + 1] = {sub(w, 2), m, n, 0, now - s, d - now, 0, sub(o, q)}
    end
  end
end
local waiting = waiters()
save()
return {st, limit, count, last, waiting, holders, places}
