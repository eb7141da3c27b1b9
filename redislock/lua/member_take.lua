-- take.lua for a member of a quorum. ARGV, four for each: the proposed token, TTL and minimum hold
-- (16 digits each); id, session, info; how many milliseconds the key lives; how many tokens the
-- grant takes.

local answers, now = {}, nil
for i, l in ipairs(KEYS) do
  local v, token = redis.pcall('GET', l), 0 -- a key that is not a string must not fail the others
  if type(v) == 'string' and string.sub(v, 1, 2) == 'F0' then
    if not now then
      local t = redis.call('TIME')
      now = t[1] .. string.sub('000000', #t[2] + 1) .. t[2]
    end
    local p = string.sub(ARGV[4 * i - 3], 1, 16)
    if p < now or p - now > LEAD then p = now end
    -- A token that begins a new granule needs acquire.lua to check the floor.
    if p - string.sub(v, 3, 18) >= tonumber(ARGV[4 * i]) and string.find(v, string.sub(p, 1, 9), 3, true) == 3 then
      redis.call('SET', l, 'X0' .. p .. now .. string.sub(ARGV[4 * i - 3], 17) .. now .. ARGV[4 * i - 2], 'PX', ARGV[4 * i - 1])
      token = tonumber(p)
    end
  end
  answers[i] = token
end
return #KEYS == 1 and answers[1] or answers
