package redislock

import (
	"crypto/sha1"
	"encoding/hex"
)

// Listeners is a script that counts the subscribers of a channel, at the server that takes writes.
// Its key is the channel. Its argument is NUMSUB, or SHARDNUMSUB for a sharded channel. A Conn uses it to
// check that a subscription is at the server that publishes, and not at a replica.
var Listeners = newScript(join("listeners"))

func newScript(text string) *Script {
	sum := sha1.Sum([]byte(text)) // how the server addresses a script; not for security
	return &Script{Text: text, SHA1: hex.EncodeToString(sum[:])}
}
