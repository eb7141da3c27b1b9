-- Finds out when the present life of a member's server began, and records that. It grants nothing.
-- ARGV[1]: new, if an operator declares a new deployment; note, to record where the server's clock
-- is. note has more ARGV: the birth and the era on record (if they differ, nothing is done); the
-- new era; the skew; 1 if the clock was set. If it was, the server forgets all grants and begins a
-- new life.
--
-- Answers {1: may vote, 0: not yet, -1: another quarantine, -2: before Redis 7, -3: a database
-- other than 0, -4: other servers, -5: a replica; microseconds to wait; its clock; the quarantine
-- on record; the run of the server; when it was born; the era; the skew; when that was recorded}.
--
-- The record: R (may vote) or N (newborn); the quarantine (16 digits); the servers of the quorum
-- (8); when it was born (16); the run of the server (40); its replication id (40). Once the clocks
-- of the servers have been compared, also: the era (8); how far this server's clock is ahead of
-- that era (16, with its sign); when that was recorded (16). See package quorum, clocks.go.
--
-- A record of another run came with older data. So did a record of this run if the server has been
-- a replica since: when it becomes a primary again, it makes a new replication id and keeps the old
-- one as the second. A new id without a second one only means that a first replica came, or that
-- the last one has been gone for long.

local sub, match, t = string.sub, string.match, redis.call('TIME')
local info, links = redis.call('INFO', 'server'), redis.call('INFO', 'replication')
local now = t[1] .. sub('000000', #t[2] + 1) .. t[2]
local clock = tonumber(now)
if tonumber(match(info, 'redis_version:(%d+)') or '0') < 7 then return {-2, 0, clock, 0, '', 0, '', 0, 0} end
local run, id, second = match(info, 'run_id:(%x+)'), match(links, 'master_replid:(%x+)'), match(links, 'master_replid2:(%x+)')
if not match(links, 'role:master') then return {-5, 0, clock, 0, run, 0, '', 0, 0} end
local old = redis.call('GET', MARK)
local had = old and sub(old, 2, 17) or QUARANTINE
local of = old and sub(old, 18, 25) or SERVERS
local same = old and sub(old, 42, 81) == run and (sub(old, 82, 121) == id or not match(second, '[^0]'))
local b, set = old, false
if ARGV[1] == 'new' then
  b = 'R' .. had .. of .. now .. run .. id
elseif not same or sub(b, 26, 41) > now then
  set = same -- and its clock was set back
  b = 'N' .. had .. of .. now .. run .. id
else
  local may = sub(b, 1, 1)
  if now - sub(b, 26, 41) >= tonumber(had) then may = 'R' end
  b = may .. sub(b, 2, 81) .. id .. sub(b, 122)
end
if ARGV[1] == 'note' and sub(b, 26, 41) == ARGV[2] and sub(b, 122, 129) == ARGV[3] then
  set = ARGV[6] == '1'
  b = (set and 'N' or sub(b, 1, 1)) .. had .. of .. (set and now or ARGV[2]) .. run .. id .. ARGV[4] .. ARGV[5] .. now
end
local left, may = 0, sub(b, 1, 1) == 'R' and 1 or 0
if may == 0 then left = had - (now - sub(b, 26, 41)) end
local born, era, skew, noted = tonumber(sub(b, 26, 41)), sub(b, 122, 129), tonumber(sub(b, 130, 145)) or 0, tonumber(sub(b, 146, 161)) or 0

-- A user without SELECT is in database 0. What is selected here lasts until the end of the script.
if b ~= old then redis.call('SET', MARK .. '?', now, 'PX', 1000) end
redis.pcall('SELECT', 0)
if b ~= old and redis.call('DEL', MARK .. '?') == 0 or redis.call('GET', MARK) ~= old then
  return {-3, 0, clock, tonumber(had), run, born, era, skew, noted}
end
if b ~= old then redis.call('SET', MARK, b) end
if set then -- its records have wrong times, and its keys' expiry relies on them
  for shard = 0, 63 do
    local at = PREFIX .. string.format('{%02x}:', shard)
    for _, name in ipairs(redis.call('ZRANGE', at .. 'i', 0, -1)) do
      redis.call('DEL', at .. 'l:' .. name, at .. 'z:' .. name, at .. 'm:' .. name)
    end
    redis.call('DEL', at .. 'i') -- the floor of the tokens stays: they grow even if a majority of the clocks is set back
  end
end
if of ~= SERVERS then
  may = -4
elseif had ~= QUARANTINE then
  may = -1
end
return {may, left, clock, tonumber(had), run, born, era, skew, noted}
