// Package worker is what the workers in Go have in common: the protocol of "holdfast verify
// --worker", which docs/verify.md describes.
package worker

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"
)

// Hello says what a lock has.
type Hello struct {
	Worker string `json:"worker"`
	Tokens bool   `json:"tokens"`
	Queue  bool   `json:"queue"`
	Wait   bool   `json:"wait"`
}

// Locker is a lock under test. Its methods may be called concurrently.
type Locker interface {
	// Lock takes the lock for id. wait 0: it does not wait. A nil Lease and a nil error: another has
	// the lock, and nothing was taken. An error: the outcome is unknown.
	Lock(id int64, name string, ttl, wait time.Duration) (Lease, error)
}

// Lease is a lock that is held.
type Lease interface {
	Token() uint64 // 0: none
	// Held reports whether the library says that the lease is valid.
	Held() (bool, error)
	// Unlock reports whether the lock was still held. An error: the outcome is unknown.
	Unlock() (bool, error)
}

type order struct {
	Do     string `json:"do"`
	URL    string `json:"url"`
	ID     int64  `json:"id"`
	Name   string `json:"name"`
	TTLMS  int64  `json:"ttl_ms"`
	WaitMS int64  `json:"wait_ms"`
}

type reply struct {
	ID     int64  `json:"id"`
	OK     *bool  `json:"ok,omitempty"`
	Held   bool   `json:"held,omitempty"`
	Token  uint64 `json:"token,omitempty"`
	Error  string `json:"error,omitempty"`
	Lost   bool   `json:"lost,omitempty"`
	Queued bool   `json:"queued,omitempty"`
}

var (
	out    = json.NewEncoder(os.Stdout)
	outMu  sync.Mutex
	leases sync.Map // by id
)

func say(line any) {
	outMu.Lock()
	defer outMu.Unlock()
	if out.Encode(line) != nil { // verify has ended
		os.Exit(1)
	}
}

// Lost reports that the lease of id was lost.
func Lost(id int64) { say(reply{ID: id, Lost: true}) }

// Queued reports that the call for id has a place in the queue.
func Queued(id int64) { say(reply{ID: id, Queued: true}) }

// Main serves orders until the end of the input. open connects to the store at url.
func Main(h Hello, open func(url string, ttl time.Duration) (Locker, error)) {
	var l Locker
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var o order
		err := json.Unmarshal(in.Bytes(), &o)
		if err == nil && o.Do == "start" {
			if l, err = open(o.URL, millis(o.TTLMS)); err == nil {
				say(h)
				continue
			}
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		go func() { say(serve(l, &o)) }()
	}
}

func millis(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

func serve(l Locker, o *order) reply {
	a := reply{ID: o.ID}
	ok, err := false, error(nil)
	switch lease, _ := leases.Load(o.ID); o.Do {
	case "lock":
		var lease Lease
		if lease, err = l.Lock(o.ID, o.Name, millis(o.TTLMS), millis(o.WaitMS)); lease != nil {
			leases.Store(o.ID, lease)
			a.Token, ok = lease.Token(), true
		}
		a.Held = err == nil && !ok
	case "held":
		ok, err = lease.(Lease).Held()
	case "unlock":
		leases.Delete(o.ID)
		ok, err = lease.(Lease).Unlock()
	}
	if err != nil {
		return reply{ID: o.ID, Error: err.Error()}
	}
	a.OK = &ok
	return a
}

// Waiting returns the context of a call that may wait. A call that must not wait has no limit of its
// own, as in the examples of the libraries.
func Waiting(wait time.Duration) (context.Context, context.CancelFunc) {
	if wait == 0 {
		return context.Background(), func() {}
	}
	return context.WithTimeout(context.Background(), wait)
}
