-- take.lua for a member of a quorum. ARGV, four for each: the proposed token, TTL and minimum hold
-- (16 digits each); id, session, info; how many milliseconds the key lives; how many tokens the
-- grant takes.

local answers, now = {}, nil
for i, l in ipairs(KEYS) do
  local v, token = redis.pcall('GET', l), 0 -- a key that is not a string must not fail the others
  local last = type(v) == 'string' and string.match(v, '^F0(%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d)')
  if last then
    if not now then
      local t = redis.call('TIME')
      now = t[1] .. string.sub('000000', #t[2] + 1) .. t[2]
    end
    local p, n = string.sub(ARGV[4 * i - 3], 1, 16), ARGV[4 * i]
    if p < now or p - now > LEAD then p = now end
    if p - last < tonumber(n) then p = string.format('%016.0f', last + n) end
    -- A token that begins a new granule needs acquire.lua to check the floor.
    if p <= MAXTOKEN and string.sub(p, 1, 9) == string.sub(last, 1, 9) then
      -- A refusal must not fail the names before, which are granted; acquire.lua reports it.
      local r = redis.pcall('SET', l, 'X0' .. p .. now .. string.sub(ARGV[4 * i - 3], 17) .. now .. ARGV[4 * i - 2], 'PX', ARGV[4 * i - 1])
      if not (type(r) == 'table' and r.err) then token = tonumber(p) end
    end
  end
  answers[i] = token
end
return #KEYS == 1 and answers[1] or answers
