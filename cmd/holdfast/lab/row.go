package lab

import (
	"crypto/sha1"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/history"
	"github.com/holdfast-lock/holdfast/redislock"
)

// Row is an algorithm of the lab, with the order of events that breaks it. It is data, with Play, or
// code.
type Row struct {
	ID      string   // its name on the command line
	Store   Store    // the kind of its server
	Title   string   // what it is, in a few words
	Setup   []string // commands that come first, such as those that create tables
	Acquire string   // its commands; a program if the row is data
	Release string
	Renew   string        // its commands, if the row is data and renews
	Share   string        // the acquire of readers, if the row is data and has them
	Unshare string        // their release
	Play    string        // the order of events, if the row is data: see play
	Token   bool          // what a client of Play remembers as {token} is its fencing token
	Lease   time.Duration // of an acquire in Play; 0: the lock lasts as long as its client
	Habit   string        // where it is used
	Why     string        // what goes wrong, in plain words
	Class   history.Class // the class of the expected violation
	Servers int           // how many it starts itself; 0: it needs one, which may be the user's
	How     string        // how holdfast survives the same schedule

	job     *job
	unsound func(*scenario) // of a row that is data: perform
	sound   func(*scenario)

	acquire, release, renew, share, unshare program // of a row that is data

	// except are classes that no lock on such servers can promise: findings of holdfast's run are
	// shown, and do not count.
	except []history.Class
}

// Rows returns all algorithms, in the order of the output.
func Rows() []Row {
	var all []Row
	for _, family := range [][]Row{setnxRows, credentialRows, setRows, habitRows, renewalRows, semaphoreRows, serverRows,
		redlockRows, pollRows, mySQLRows, postgresRows, sqliteRows, zkQueueRows, zkNodeRows,
		zkCostRows} {
		all = append(all, family...)
	}
	for i := range all {
		r := &all[i]
		if r.Store == "" {
			r.Store = Redis
		}
		if r.Play != "" {
			r.prepare()
		}
	}
	return all
}

// prepare reads the texts of a row that is data.
func (r *Row) prepare() {
	for text, to := range map[*string]*program{
		&r.Acquire: &r.acquire, &r.Release: &r.release, &r.Renew: &r.renew, &r.Share: &r.share, &r.Unshare: &r.unshare,
	} {
		*to = parseProgram(*text)
		*text = strings.Join(slices.Collect(lines(*text)), "; ") // for readers
	}
	own := *r // the caller may change its slice of rows
	r.unsound = perform(&own)
}

// permits is how many clients may have the lock at a time.
func (r *Row) permits() int32 { return int32(max(r.job.limit, 1)) }

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
