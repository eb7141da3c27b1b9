package redislock

import (
	"crypto/sha1"
	"encoding/hex"
)

// Listeners says how many listen to the channel that is its key, at the server that takes writes for it. Its
// argument is NUMSUB, or SHARDNUMSUB for a sharded channel. A Conn finds out with it whether a subscription is
// where waiters are told, and not at a replica.
var Listeners = newScript(join("listeners"))

func newScript(text string) *Script {
	sum := sha1.Sum([]byte(text)) // the server's name for it, no secret
	return &Script{Text: text, SHA1: hex.EncodeToString(sum[:])}
}
