package verify

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// Job describes a worker's work. It is the first line of the worker's input, in JSON. No part of it
// is in the arguments or the environment, where others could read the store's password.
type Job struct {
	URL      string // of the store
	Relay    string // host:port of the relay to the store's servers; empty: connect directly
	Key      string // the password of the relay and of the Resource, so that they serve only verify
	Resource string // host:port of the Resource
	// A name for this run of the process, such as p3.2; its clients are p3.2/0, p3.2/1, ….
	Process string
	Dir     string        // the history is appended to Dir/Process.jsonl
	Prefix  string        // of all names of locks
	Names   int           // how many names of each kind
	Clients int           // holdfast clients
	Loops   int           // goroutines that take locks, shared among the clients
	TTL     time.Duration // of the clients
	Seed    uint64
	Mix     string        // MixAll or MixMutex
	Pause   time.Duration // how long each loop pauses between two locks, on average
	// Each client also holds a mutex of its own: Prefix, OwnNames, and the client's name.
	Own bool
}

// The values of Job.Mix.
const (
	MixAll   = "all"   // mutexes, read/write locks, semaphores: those of them that the store has
	MixMutex = "mutex" // mutexes only
)

// OwnNames follows the prefix in the names of Job.Own.
const OwnNames = "own/"

// Upper limits of a Job: more than any machine can use, and low enough that a typing error does no
// harm.
const (
	maxNames   = 10_000
	maxClients = 1_000
	maxLoops   = 10_000
	maxJob     = 64 << 10 // bytes of its line
	maxSuffix  = 32       // bytes of a name after Prefix
)

// ErrJob is the error of a worker whose Job is invalid.
var ErrJob = errors.New("invalid job")

// Finish is the line of input that ends a worker in order: it starts no new calls, releases its
// leases, and closes its clients.
const Finish = "finish"

// parseJob reads the first line of a worker's input.
func parseJob(line []byte) (*Job, error) {
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	j := new(Job)
	if err := d.Decode(j); err != nil {
		// An error of encoding/json may quote the value, and with it a password.
		return nil, fmt.Errorf("%w: the first line of the input is not a job in JSON that this version knows", ErrJob)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("%w: more than one value in its line", ErrJob)
	}
	return j, j.check()
}

func (j *Job) check() error {
	word := func(s string) bool { return s != "" && !strings.ContainsAny(s, " /\\\r\n\x00") }
	in := func(n, most int) bool { return n >= 1 && n <= most }
	var what string
	switch {
	case j.URL == "":
		what = "no URL"
	case strings.ContainsAny(j.Relay+j.Key+j.Resource, " \r\n"):
		what = "Relay, Key or Resource is not one word"
	case j.Resource == "":
		what = "no Resource"
	case !word(j.Process) || strings.Trim(j.Process, ".") == "":
		what = fmt.Sprintf("Process %q: it must be one word that can name a file", j.Process)
	case j.Dir == "":
		what = "no Dir"
	case strings.ContainsAny(j.Prefix, "\r\n"):
		what = "Prefix has a line break"
	case len(j.Prefix) > driver.MaxName-maxSuffix:
		what = fmt.Sprintf("Prefix has %d bytes; allowed are %d", len(j.Prefix), driver.MaxName-maxSuffix)
	case !in(j.Names, maxNames):
		what = fmt.Sprintf("Names %d: allowed are 1 to %d", j.Names, maxNames)
	case !in(j.Clients, maxClients):
		what = fmt.Sprintf("Clients %d: allowed are 1 to %d", j.Clients, maxClients)
	case !in(j.Loops, maxLoops):
		what = fmt.Sprintf("Loops %d: allowed are 1 to %d", j.Loops, maxLoops)
	case j.TTL < driver.MinTTL || j.TTL > driver.MaxTTL:
		what = fmt.Sprintf("TTL %v: allowed are %v to %v", j.TTL, driver.MinTTL, driver.MaxTTL)
	case j.Pause < 0:
		what = fmt.Sprintf("Pause %v: allowed are 0 and more", j.Pause)
	case j.Mix != MixAll && j.Mix != MixMutex:
		what = fmt.Sprintf("Mix %q: allowed are %s and %s", j.Mix, MixAll, MixMutex)
	default:
		return nil
	}
	return fmt.Errorf("%w: %s", ErrJob, what)
}

// Progress is a line of a worker's output, in JSON.
type Progress struct {
	T       int64 `json:"t,omitempty"`       // of the values, by history.Now
	Ready   bool  `json:"ready,omitempty"`   // all clients are connected: the first line
	Grants  int64 `json:"grants,omitempty"`  // so far
	Errors  int64 `json:"errors,omitempty"`  // failed calls, without refusals and cancels
	Waiting int   `json:"waiting,omitempty"` // calls in queues now
	Holding int   `json:"holding,omitempty"` // leases now

	// LongestWaitMS is how long the oldest of Waiting has waited.
	LongestWaitMS int64 `json:"longest_wait_ms,omitempty"`

	// LastError is the latest of Errors, or why the clients cannot connect; without passwords.
	LastError string `json:"last_error,omitempty"`
}
