-- Stands before every script of a member of a quorum but member_birth.lua, which see, and drop.lua, which
-- only ends what has been granted. It lets a script go on if the server's present life is on record and may
-- grant. The replication id on record is the server's own as long as neither has it started again nor has
-- another server's data taken the place of its own.

local mark, links = redis.call('GET', MARK) or '', redis.call('INFO', 'replication')
if string.sub(mark, 1, 25) ~= 'R' .. QUARANTINE .. SERVERS or not string.find(links, 'role:master', 1, true)
  or not string.find(links, 'master_replid:' .. string.sub(mark, 82, 121) .. '\r', 1, true) then return NEWBORN end
