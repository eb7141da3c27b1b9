package lab

import (
	"crypto/sha1"
	"encoding/hex"
	"time"

	"github.com/holdfast-lock/holdfast/history"
	"github.com/holdfast-lock/holdfast/redislock"
)

// Row is an algorithm of the lab, with the schedule that breaks it.
type Row struct {
	ID      string // what it is called on the command line
	Title   string // what it is, in a few words
	Acquire string // its commands
	Release string
	Habit   string        // where it is met
	Why     string        // what goes wrong, in plain words
	Class   history.Class // the class of the checker that it has to be caught in
	Servers int           // how many it starts itself; 0: one is enough, and may be the user's
	How     string        // how holdfast comes through the same schedule

	job     *job
	unsound func(*play)
	sound   func(*play)

	// except are classes that no lock on such servers can keep: found in holdfast's run they are shown, and do not count.
	except []history.Class
}

// Rows are all algorithms, in the order in which they are shown.
func Rows() []Row {
	var all []Row
	for _, family := range [][]Row{setnxRows, credentialRows, setRows, renewalRows, semaphoreRows, serverRows, redlockRows, pollRows} {
		all = append(all, family...)
	}
	return all
}

// lease is how long the algorithms' locks last. Time is skipped, so it costs nothing.
const lease = 10 * time.Second

const (
	leaseSeconds = "10"
	leaseMillis  = "10000"
)

// script makes a script of the lab's own.
func script(text string) *redislock.Script {
	sum := sha1.Sum([]byte(text)) // the server's name for it, no secret
	return &redislock.Script{Text: text, SHA1: hex.EncodeToString(sum[:])}
}

// got reports whether an answer is yes: 1, or OK.
func got(v redislock.Value) bool { return v.Int == 1 || v.Text == "OK" }

// number is a text that is a number, or 0.
func number(text string) (n int64) {
	for _, d := range text {
		if d < '0' || d > '9' {
			return 0
		}
		n = n*10 + int64(d-'0')
	}
	return n
}

// millis is n milliseconds.
func millis(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
