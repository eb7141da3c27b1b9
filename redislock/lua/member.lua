-- Comes before every script of a member of a quorum, except member_birth.lua, and drop.lua and
-- missing.lua, which grant nothing. It lets a script continue if the server's present life is on record and may vote.
-- The replication id changes when the server restarts, or when another server's data replaces its
-- own.

local mark, links = redis.call('GET', MARK) or '', redis.call('INFO', 'replication')
if string.sub(mark, 1, 25) ~= 'R' .. QUARANTINE .. SERVERS or not string.find(links, 'role:master', 1, true)
  or not string.find(links, 'master_replid:' .. string.sub(mark, 82, 121) .. '\r', 1, true) then return NEWBORN end
