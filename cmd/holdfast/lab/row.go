package lab

import (
	"crypto/sha1"
	"encoding/hex"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/history"
	"github.com/holdfast-lock/holdfast/redislock"
)

// Row is an algorithm of the lab, with the schedule that breaks it.
type Row struct {
	ID      string // its name on the command line
	Title   string // what it is, in a few words
	Acquire string // its commands
	Release string
	Habit   string        // where it is used
	Why     string        // what goes wrong, in plain words
	Class   history.Class // the class of the expected violation
	Servers int           // how many it starts itself; 0: it needs one, which may be the user's
	How     string        // how holdfast survives the same schedule

	job     *job
	unsound func(*scenario)
	sound   func(*scenario)

	// except are classes that no lock on such servers can promise: findings of holdfast's run are
	// shown, and do not count.
	except []history.Class
}

// Rows returns all algorithms, in the order of the output.
func Rows() []Row {
	var all []Row
	for _, family := range [][]Row{setnxRows, credentialRows, setRows, renewalRows, semaphoreRows, serverRows, redlockRows,
		pollRows} {
		all = append(all, family...)
	}
	return all
}

// lease is the TTL of the algorithms' locks. Time is skipped, so it costs nothing.
const lease = 10 * time.Second

const (
	leaseSeconds = "10"
	leaseMillis  = "10000"
)

// script returns a script of the lab.
func script(text string) *redislock.Script {
	sum := sha1.Sum([]byte(text)) // the server's name for the script, not a secret
	return &redislock.Script{Text: text, SHA1: hex.EncodeToString(sum[:])}
}

// got reports whether an answer is positive: 1, or OK.
func got(v redislock.Value) bool { return v.Int == 1 || v.Text == "OK" }

// number returns text as a number, or 0.
func number(text string) (n int64) {
	for _, d := range text {
		if d < '0' || d > '9' {
			return 0
		}
		n = n*10 + int64(d-'0')
	}
	return n
}

// millis returns n milliseconds.
func millis(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
