-- Stands before every script of a member of a quorum. A script that no key is given for is
-- there to be loaded: it makes sure that the server's birth in this run is on record, so
-- a server that has restarted cannot get to know a script without that. ARGV[1]: new, if
-- an operator says that this is a new deployment; note, to put on record where the server's clock is
-- (ARGV: the birth and the era that were on record, or nothing is done; the era; the skew; 1 if the clock was
-- set: then the server forgets who has what, and begins a new life). Answers {1: may grant, 0: not yet, -1:
-- another quarantine, -2: before Redis 7, which could remember scripts over a restart, -3:
-- another database than 0, -4: other servers; microseconds to wait; its clock; the quarantine
-- on record; the run of the server; when it was born; the era; the skew; since when that is on record}.
--
-- Scripts belong to the server and the record to a database: if there were several, loading a
-- script with a look at one record would let in those who use another.
--
-- The record: R (may grant) or N (newborn); the quarantine (16 digits); which servers make the
-- quorum (8); when it was born (16); the run of the server (40); and, once it is known how the clocks of the
-- servers compare, the era (8); by how much this server's is ahead of the time of that era
-- (16, with its sign); when that was noted (16). See package quorum, clocks.go.

if #KEYS == 0 then
  local sub, t, info = string.sub, redis.call('TIME'), redis.call('INFO', 'server')
  local now = t[1] .. sub('000000', #t[2] + 1) .. t[2]
  local clock = tonumber(now)
  if tonumber(string.match(info, 'redis_version:(%d+)') or '0') < 7 then return {-2, 0, clock, 0, '', 0, '', 0, 0} end
  local run, b = string.match(info, 'run_id:(%x+)'), redis.call('GET', MARK)
  local had = b and sub(b, 2, 17) or QUARANTINE
  local of = b and sub(b, 18, 25) or SERVERS
  local old, set = b, false
  if ARGV[1] == 'new' then
    b = 'R' .. had .. of .. now .. run
  elseif not b or sub(b, 42, 81) ~= run or sub(b, 26, 41) > now then
    set = b and sub(b, 42, 81) == run -- back
    b = 'N' .. had .. of .. now .. run
  elseif sub(b, 1, 1) == 'N' and now - sub(b, 26, 41) >= tonumber(had) then
    b = 'R' .. sub(b, 2)
  end
  if ARGV[1] == 'note' and sub(b, 26, 41) == ARGV[2] and sub(b, 82, 89) == ARGV[3] then
    set = ARGV[6] == '1'
    b = (set and 'N' or sub(b, 1, 1)) .. had .. of .. (set and now or ARGV[2]) .. run .. ARGV[4] .. ARGV[5] .. now
  end
  if b ~= old then redis.call('SET', MARK, b) end
  if set then -- what is there was written by a wrong time, and its keys live by that: for too short, or for a month
    for shard = 0, 63 do
      local at = PREFIX .. string.format('{%02x}:', shard)
      for _, name in ipairs(redis.call('ZRANGE', at .. 'i', 0, -1)) do
        redis.call('DEL', at .. 'l:' .. name, at .. 'z:' .. name, at .. 'm:' .. name)
      end
      redis.call('DEL', at .. 'i') -- the floor of the tokens stays: they grow even if a majority of the clocks is set back
    end
  end
  local left = 0
  if sub(b, 1, 1) == 'N' then left = had - (now - sub(b, 26, 41)) end
  redis.pcall('SELECT', 0) -- ends with the script. Who may not do it is there already
  local may = sub(b, 1, 1) == 'R' and 1 or 0
  if redis.call('GET', MARK) ~= b then
    may, left = -3, 0
  elseif of ~= SERVERS then
    may = -4
  elseif had ~= QUARANTINE then
    may = -1
  end
  return {may, left, clock, tonumber(had), run, tonumber(sub(b, 26, 41)), sub(b, 82, 89), tonumber(sub(b, 90, 105)) or 0, tonumber(sub(b, 106, 121)) or 0}
end
if string.sub(redis.call('GET', MARK) or '', 1, 25) ~= 'R' .. QUARANTINE .. SERVERS then return NEWBORN end
