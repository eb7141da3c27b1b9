package holdfast

import (
	"context"
	"sync"
	"time"
)

// teller calls functions of the application, a Logger or an Observer, one after the other,
// from a goroutine that exists only while there is something to tell. A function that blocks
// or panics harms nothing else: what does not fit into the queue meanwhile is dropped.
type teller struct {
	mu    sync.Mutex
	queue []func()
	idle  chan struct{} // closed when the goroutine ends; nil: there is none
	lost  int           // dropped since the log has said so
}

const maxTold = 256 // in a queue

func (t *teller) tell(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.queue) >= maxTold {
		t.lost++
		return
	}
	t.queue = append(t.queue, f)
	if t.idle == nil {
		t.idle = make(chan struct{})
		go t.run()
	}
}

func (t *teller) run() {
	ended := false
	defer func() {
		if !ended { // what it called has ended the goroutine
			t.lose()
			go t.run()
		}
	}()
	for {
		t.mu.Lock()
		if len(t.queue) == 0 {
			t.queue, ended = nil, true
			close(t.idle)
			t.idle = nil
			t.mu.Unlock()
			return
		}
		f := t.queue[0]
		t.queue = t.queue[1:]
		t.mu.Unlock()
		t.call(f)
	}
}

func (t *teller) call(f func()) {
	defer func() {
		if recover() != nil {
			t.lose()
		}
	}()
	f()
}

// lose counts something that nobody is told.
func (t *teller) lose() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lost++
}

// dropped returns the count and begins a new one.
func (t *teller) dropped() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.lost
	t.lost = 0
	return n
}

// flush waits until all has been told, but not for a function that blocks.
func (t *teller) flush(ctx context.Context) {
	t.mu.Lock()
	idle := t.idle
	t.mu.Unlock()
	if idle == nil {
		return
	}
	wait := time.Second
	if end, ok := ctx.Deadline(); ok {
		wait = min(wait, max(time.Until(end), 20*time.Millisecond))
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-idle:
	case <-timer.C:
	}
}

// warn writes a line to the log, and how much nobody was told since the last one.
func (c *Client) warn(text string, args ...any) {
	if c.log == nil {
		return
	}
	c.logs.tell(func() {
		if n := c.logs.dropped() + c.events.dropped(); n > 0 {
			args = append(args, "dropped", n)
		}
		c.log.Warn(text, args...)
	})
}

// trouble is an outage as far as the log knows of it. Only the keeper uses it.
type trouble struct {
	failures int
	since    time.Duration // on c.now
	next     time.Duration // when the log is told again
}

// ails tells the log that renewing or opening a session has failed: at first, and then once
// a minute, or a TTL if that is longer.
func (c *Client) ails(text string, err error) {
	t, now := &c.outage, c.now()
	if t.failures++; t.failures == 1 {
		t.since = now
	} else if now < t.next {
		return
	}
	t.next = now + max(c.TTL(), time.Minute)
	c.warn(text, "failures", t.failures, "for", round(now-t.since), "err", err)
}

// recovered tells the log that the outage is over.
func (c *Client) recovered() {
	if t := c.outage; t.failures > 0 {
		c.outage = trouble{}
		c.warn("holdfast: the store answers again", "failures", t.failures, "for", round(c.now()-t.since))
	}
}
