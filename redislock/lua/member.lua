-- Stands before every script of a member of a quorum. A script that no key is given for is
-- there to be loaded: it makes sure that the server's birth in this run is on record, so
-- a server that has restarted cannot get to know a script without that. ARGV[1]: new, if
-- an operator says that this is a new deployment. Answers {1: may grant, 0: not yet, -1:
-- another quarantine, -2: before Redis 7, which could remember scripts over a restart, -3:
-- another database than 0, -4: other servers; microseconds to wait; its clock; the quarantine
-- on record; the run of the server}.
--
-- Scripts belong to the server and the record to a database: if there were several, loading a
-- script with a look at one record would let in those who use another.
--
-- The record: R (may grant) or N (newborn); the quarantine (16 digits); which servers make the
-- quorum (8); when it was born (16); the run of the server.

if #KEYS == 0 then
  local t, info = redis.call('TIME'), redis.call('INFO', 'server')
  local now = t[1] .. string.sub('000000', #t[2] + 1) .. t[2]
  local clock = tonumber(now)
  if tonumber(string.match(info, 'redis_version:(%d+)') or '0') < 7 then return {-2, 0, clock, 0, ''} end
  local run, b = string.match(info, 'run_id:(%x+)'), redis.call('GET', MARK)
  local had = b and string.sub(b, 2, 17) or QUARANTINE
  local of = b and string.sub(b, 18, 25) or SERVERS
  local old = b
  if ARGV[1] == 'new' then
    b = 'R' .. had .. of .. now .. run
  elseif not b or string.sub(b, 42) ~= run or string.sub(b, 26, 41) > now then
    b = 'N' .. had .. of .. now .. run
  elseif string.sub(b, 1, 1) == 'N' and now - string.sub(b, 26, 41) >= tonumber(had) then
    b = 'R' .. string.sub(b, 2)
  end
  if b ~= old then redis.call('SET', MARK, b) end
  local left = 0
  if string.sub(b, 1, 1) == 'N' then left = had - (now - string.sub(b, 26, 41)) end
  redis.pcall('SELECT', 0) -- ends with the script. Who may not do it is there already
  if redis.call('GET', MARK) ~= b then return {-3, 0, clock, 0, run} end
  if of ~= SERVERS then return {-4, left, clock, tonumber(had), run} end
  if had ~= QUARANTINE then return {-1, left, clock, tonumber(had), run} end
  return {string.sub(b, 1, 1) == 'R' and 1 or 0, left, clock, tonumber(had), run}
end
if string.sub(redis.call('GET', MARK) or '', 1, 25) ~= 'R' .. QUARANTINE .. SERVERS then return NEWBORN end
local want = 0 -- the token that is proposed
