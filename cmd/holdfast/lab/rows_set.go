package lab

// The locks of SET with NX and PX, and of one script.

var setRows = []Row{
	{
		ID: "lua-setnx-expire", Title: "a script of SETNX and EXPIRE, DEL", job: stock, Class: "S1", Lease: lease,
		Acquire: "script: SETNX R lock, EXPIRE R 10 → 1", Release: "DEL R",
		Habit: "setnx-expire fixed with a script, without a change of the release",
		Why:   "A outlives its lease, B gets the lock, A's DEL removes B's lock, and C gets the lock while B holds it.",
		How:   "a slow holder renews its lease; a release names the grant that it ends",
		Play:  lateDelete, sound: slowHolder,
	},
	{
		ID: "setpx-del", Title: "SET NX PX, DEL", job: points, Class: "S1", Lease: lease,
		Acquire: "SET R 1 NX PX 10000 → OK", Release: "DEL R",
		Habit: "what most tutorials show; defer client.Del(key)",
		Why:   "A outlives its lease, B gets the lock, A's DEL removes B's lock, and C gets the lock while B holds it. B's DEL then removes C's lock, and so on.",
		How:   "a slow holder renews its lease; a release names the grant that it ends",
		Play:  lateDelete, sound: slowHolder,
	},
	{
		ID: "setpx-get-del", Title: "SET NX PX with an owner, GET and DEL", job: gift, Class: "S1", Lease: lease,
		Acquire: "SET R {me} NX PX 10000 → OK", Release: "GET R → {me}\nat: between the check and DEL\nDEL R",
		Habit: "the client compares the owner",
		Why:   "A's lease ends between its GET and its DEL. The DEL removes B's lock, and C gets the lock while B holds it.",
		How:   "the server compares and removes in one step, so a late release removes nothing",
		Play:  gapInRelease, sound: cutOff,
	},
	{
		ID: "setpx-lua", Title: "SET NX PX with an owner, released by script, never renewed", job: points, Class: "S2",
		Acquire: "SET R {me} NX PX 10000 → OK", Release: "script: if GET R = {me}, DEL R → 1", Lease: lease,
		Habit: "the recipe of the Redis manual, and most small libraries",
		Why:   "The release is correct. But A works for longer than its lease, does not learn that, and works on while B holds the lock.",
		How:   "a lease renews itself; if it cannot, its context ends before another client gets the lock, and the resource refuses its token",
		Play: `
			A locks
			12s later: A is slow, and does not learn that its lease has ended
			B locks
			A unlocks
			B unlocks`,
		sound: cutOff,
	},
}

// lateDelete: A works for longer than its lease, B gets the lock, A's release removes B's lock, and C
// gets the lock while B holds it.
const lateDelete = `
	A locks
	12s later: A is slow: a long query, a pause of its garbage collector, a machine that swaps
	B locks
	A unlocks
	lab: A's DEL has removed B's lock
	C locks
	B unlocks
	C unlocks`

// gapInRelease: A's lease ends between the check of its release and the DEL, which removes B's lock.
const gapInRelease = `
	A locks
	A thinks: finds no work to do
	A releases up to between the check and DEL
	A thinks: the key is still its own; next is the DEL
	12s later: A is paused between the two
	B locks
	A goes on
	lab: A's DEL has removed B's lock
	C locks
	B unlocks
	C unlocks`

var setnxThenExpire = script(`
if redis.call('SETNX', KEYS[1], ARGV[1]) == 1 then
  redis.call('EXPIRE', KEYS[1], ARGV[2])
  return 1
end
return 0`)

var compareAndDelete = script(`
local owner = redis.call('GET', KEYS[1])
if not owner then return nil end
if owner == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0`)
