package holdfast

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// historian adds the entries of one client to histories at the store, in order, in the background.
// Its goroutine exists only while there are entries. The lock path waits for none of this: entries
// that do not fit into the queue, or that the store does not take, are dropped and counted.
type historian struct {
	c    *Client
	keep int // entries for each name; 0: the client adds nothing

	mu      sync.Mutex
	queue   []queuedEntry
	running bool
	silent  time.Duration // entries are dropped before this reading of coarseNow: the store has refused one
	dropped int           // since the last line of the log
	logAt   time.Duration // when the next line may come
}

type queuedEntry struct {
	name string
	text historyText
	at   time.Duration // when the event happened, on coarseNow
}

const maxEntries = 4096 // in the queue

// add queues an entry about l. The event happened ago before now.
func (h *historian) add(l *Lease, event string, took time.Duration, reason string, ago time.Duration) {
	info := driver.ParseInfo(l.req.Info)
	info.LeaseMS, info.HoldMS = 0, 0 // of the lease, not of the event
	e := queuedEntry{l.req.Name, historyText{
		Event: event, Token: l.token, By: info, Shared: l.req.Mode == driver.Shared,
		Took: max(took, 0).Microseconds(), Reason: reason,
	}, h.c.coarseNow() - ago}
	if l.req.Mode == driver.Permits {
		e.text.N = l.req.N
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.c.coarseNow() < h.silent || len(h.queue) >= maxEntries {
		h.dropped++
		return
	}
	if !h.running {
		if !h.c.work.tryAdd() { // Close has waited for all others
			h.dropped++
			return
		}
		h.running = true
		go h.run()
	}
	h.queue = append(h.queue, e)
}

func (h *historian) run() {
	defer h.c.work.done()
	for {
		h.mu.Lock()
		if len(h.queue) == 0 {
			h.queue, h.running = nil, false
			h.mu.Unlock()
			return
		}
		e := h.queue[0]
		h.queue = h.queue[1:]
		h.mu.Unlock()
		h.send(e)
	}
}

// send adds one entry, and repeats that once if the answer is lost.
func (h *historian) send(e queuedEntry) {
	c := h.c
	e.text.Ago = max(c.coarseNow()-e.at, 0).Microseconds()
	text := e.text.String()
	var err error
	for range 2 {
		ctx, cancel := context.WithTimeout(c.workCtx, c.limit())
		err = c.store.AddHistory(ctx, e.name, text, h.keep)
		cancel()
		if err == nil || final(err) || c.openCtx.Err() != nil {
			break
		}
	}
	if err == nil {
		return
	}
	h.mu.Lock()
	h.dropped++
	now := c.coarseNow()
	if errors.Is(err, ErrRefused) { // it will refuse the others, too
		h.silent = now + refusalPause
		h.dropped += len(h.queue)
		h.queue = nil
	}
	dropped := 0
	if now >= h.logAt {
		dropped, h.dropped, h.logAt = h.dropped, 0, now+refusalPause
	}
	h.mu.Unlock()
	if dropped > 0 {
		c.warn("holdfast: the store has not added to a history", "lock", e.name, "entries", dropped, "err", err)
	}
}

// refusalPause is how long a historian adds nothing after the store has refused an entry, and how
// often it logs.
const refusalPause = time.Minute
