package holdfast

import (
	"context"
	"sync"
	"time"
)

// callQueue calls functions of the application, a Logger or an Observer, one after the other. Its
// goroutine exists only while there are calls. A function that blocks or panics affects nothing
// else: calls that do not fit into the queue meanwhile are dropped.
type callQueue struct {
	mu      sync.Mutex
	queue   []func()
	idle    chan struct{} // closed when the goroutine ends; nil: there is none
	dropped int           // since the last line of the log
	total   uint64        // dropped since the client was opened
}

// How many calls a queue has when it drops others. All leases may end at once, and counters would be
// wrong for ever. Exchanges come in bursts.
const (
	maxCalls     = 256
	maxExchanges = 1 << 12
	maxEnds      = 1 << 16
)

func (q *callQueue) add(f func()) { q.addUpTo(maxCalls, f) }

// addEnd is add for a call that comes once: about the end of a wait or a lease, or about a client that
// opens or closes.
func (q *callQueue) addEnd(f func()) { q.addUpTo(maxEnds, f) }

func (q *callQueue) addUpTo(most int, f func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.queue) >= most {
		q.dropped++
		q.total++
		return
	}
	q.queue = append(q.queue, f)
	if q.idle == nil {
		q.idle = make(chan struct{})
		go q.run()
	}
}

func (q *callQueue) run() {
	ended := false
	defer func() {
		if !ended { // the function has ended the goroutine
			q.countDropped()
			go q.run()
		}
	}()
	for {
		q.mu.Lock()
		if len(q.queue) == 0 {
			q.queue, ended = nil, true
			close(q.idle)
			q.idle = nil
			q.mu.Unlock()
			return
		}
		f := q.queue[0]
		q.queue = q.queue[1:]
		q.mu.Unlock()
		q.call(f)
	}
}

func (q *callQueue) call(f func()) {
	defer func() {
		if recover() != nil {
			q.countDropped()
		}
	}()
	f()
}

func (q *callQueue) countDropped() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.dropped++
	q.total++
}

// takeDropped returns the number of dropped calls and resets it.
func (q *callQueue) takeDropped() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.dropped
	q.dropped = 0
	return n
}

// totalDropped returns the number of calls that were dropped since the client was opened.
func (q *callQueue) totalDropped() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.total
}

// flush waits until all calls are done, at most a second.
func (q *callQueue) flush(ctx context.Context) {
	q.mu.Lock()
	idle := q.idle
	q.mu.Unlock()
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

// warn writes a line to the log, with the number of calls that were dropped since the last line.
func (c *Client) warn(text string, args ...any) {
	if c.log == nil {
		return
	}
	c.logCalls.add(func() {
		if n := c.logCalls.takeDropped() + c.observerCalls.takeDropped() + c.exchangeCalls.takeDropped(); n > 0 {
			args = append(args, "dropped", n)
		}
		c.log.Warn(text, args...)
	})
}

// outageState is what the log has about an outage. Only the keeper uses it.
type outageState struct {
	failures int
	since    time.Duration // on c.now
	last     time.Duration // when the last one failed
	next     time.Duration // when to log again
}

// noteOutage logs that renewing or opening a session has failed: at first, and then once a minute,
// or a TTL if that is longer. Failures that follow each other are less than a TTL apart.
func (c *Client) noteOutage(text string, err error) {
	t, now := &c.outage, c.now()
	if now-t.last > c.TTL() {
		c.renewalSucceeded()
	}
	if t.failures++; t.failures == 1 {
		t.since, t.next = now, now
	}
	if t.last = now; now < t.next {
		return
	}
	t.next = now + max(c.TTL(), time.Minute)
	c.warn(text, "failures", t.failures, "for", round(now-t.since), "err", err)
}

// renewalSucceeded logs that the outage is over if the store has answered a request that was sent
// after the last failure. A renewal of nothing succeeds without an exchange, so it proves nothing.
func (c *Client) renewalSucceeded() {
	c.mu.Lock()
	proved := c.answered >= c.outage.last
	c.mu.Unlock()
	if proved {
		c.recovered()
	}
}

// recovered logs that the outage is over.
func (c *Client) recovered() {
	if t := c.outage; t.failures > 0 {
		c.outage = outageState{}
		c.warn("holdfast: the store answers again", "failures", t.failures, "for", round(c.now()-t.since))
	}
}
