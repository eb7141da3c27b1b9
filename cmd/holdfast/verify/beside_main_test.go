package verify

import (
	"bufio"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// rLock is a worker with an RLock of Redisson, by what it does: a hash with the count of each holder,
// a message at its end, a renewal three times a lease. docs/redisson.md has the format. Two variants
// are broken: "rlock elsewhere" keeps the lock in a key of its own, "rlock barges" ignores the holder.
type rLock struct {
	*testLock
	which  string
	client string
}

const (
	rAcquire = `if redis.call('EXISTS', KEYS[1]) == 1 and redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
  return redis.call('PTTL', KEYS[1])
end
redis.call('HINCRBY', KEYS[1], ARGV[1], 1)
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return false`
	rBarge = `redis.call('HINCRBY', KEYS[1], ARGV[1], 1)
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return false`
	rRenew   = `return redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 and redis.call('PEXPIRE', KEYS[1], ARGV[2])`
	rHeld    = `return redis.call('HEXISTS', KEYS[1], ARGV[1])`
	rRelease = `if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
if redis.call('HINCRBY', KEYS[1], ARGV[1], -1) == 0 then
  redis.call('DEL', KEYS[1])
  redis.call('PUBLISH', ARGV[2], '0')
end
return 1`
)

// serveRLock answers the orders of in.
func serveRLock(which, addr string, in *bufio.Scanner) error {
	w := &rLock{&testLock{addr: addr, leases: map[int64]*testLease{}}, which, rand.Text()}
	w.say(`{"worker":%q,"wait":true}`, which)
	for in.Scan() {
		var o externalOrder
		if err := json.Unmarshal(in.Bytes(), &o); err != nil {
			return err
		}
		go w.do(o)
	}
	return nil
}

func rChannel(key string) string { return "redisson_lock__channel:{" + key + "}" }

func (w *rLock) eval(script string, l *testLease, arg string) (string, error) {
	return w.redis("EVAL", script, "1", l.name, l.owner, arg)
}

func (w *rLock) do(o externalOrder) {
	var ok bool
	var err error
	w.mu.Lock()
	l := w.leases[o.ID]
	w.mu.Unlock()
	switch o.Do {
	case "lock":
		ok, err = w.lock(o)
	case "held":
		var answer string
		answer, err = w.eval(rHeld, l, "")
		ok = answer == "1"
	case "unlock":
		close(l.over)
		var answer string
		answer, err = w.eval(rRelease, l, rChannel(l.name))
		ok = answer == "1"
	}
	switch {
	case err != nil:
		w.say(`{"id":%d,"error":%q}`, o.ID, err.Error())
	case !ok && o.Do == "lock":
		w.say(`{"id":%d,"ok":false,"held":true}`, o.ID)
	default:
		w.say(`{"id":%d,"ok":%v}`, o.ID, ok)
	}
}

// lock tries, subscribes, tries again, and then after each message and each lease of others.
func (w *rLock) lock(o externalOrder) (bool, error) {
	l := &testLease{name: o.Name, owner: fmt.Sprintf("%s:%d", w.client, o.ID),
		ttl: time.Duration(o.TTLMS) * time.Millisecond, over: make(chan struct{})}
	acquire := rAcquire
	switch w.which {
	case "rlock elsewhere":
		l.name += ":lock"
	case "rlock barges":
		acquire = rBarge
	}
	end := time.Now().Add(time.Duration(o.WaitMS) * time.Millisecond)
	var messages <-chan struct{}
	for {
		answer, err := w.eval(acquire, l, strconv.FormatInt(o.TTLMS, 10))
		if err != nil {
			return false, err
		}
		if answer == "" {
			w.mu.Lock()
			w.leases[o.ID] = l
			w.mu.Unlock()
			go w.renew(l)
			return true, nil
		}
		left, err := strconv.Atoi(answer)
		if err != nil {
			return false, err
		}
		if !time.Now().Before(end) {
			return false, nil
		}
		if messages == nil {
			var stop func()
			if messages, stop, err = w.subscribe(rChannel(l.name)); err != nil {
				return false, err
			}
			defer stop()
			continue
		}
		select {
		case <-messages:
		case <-time.After(min(time.Until(end), time.Duration(left)*time.Millisecond)):
		}
	}
}

func (w *rLock) renew(l *testLease) {
	for {
		select {
		case <-l.over:
			return
		case <-time.After(l.ttl / 3):
		}
		if answer, err := w.eval(rRenew, l, strconv.FormatInt(l.ttl.Milliseconds(), 10)); err == nil && answer != "1" {
			return
		}
	}
}

// subscribe returns the messages of a channel, until stop. A connection that ends has no more.
func (w *rLock) subscribe(channel string) (messages <-chan struct{}, stop func(), err error) {
	const limit = 2 * time.Second
	c, err := net.DialTimeout("tcp", w.addr, limit)
	if err != nil {
		return nil, nil, err
	}
	stop = func() { _ = c.Close() }
	in := bufio.NewReader(c)
	_ = c.SetDeadline(time.Now().Add(limit))
	if _, err = fmt.Fprintf(c, "*2\r\n$9\r\nSUBSCRIBE\r\n$%d\r\n%s\r\n", len(channel), channel); err == nil {
		err = nextMessage(in) // that it is subscribed
	}
	if err != nil {
		stop()
		return nil, nil, err
	}
	_ = c.SetDeadline(time.Time{})
	all := make(chan struct{}, 1)
	go func() {
		for nextMessage(in) == nil {
			select {
			case all <- struct{}{}:
			default:
			}
		}
	}()
	return all, stop, nil
}

// nextMessage reads a list of three.
func nextMessage(in *bufio.Reader) error {
	for lines := 1; lines > 0; lines-- {
		line, err := in.ReadString('\n')
		if err != nil {
			return err
		}
		switch line = strings.TrimSpace(line); {
		case line == "*3":
			lines += 3
		case strings.HasPrefix(line, "$"):
			n, err := strconv.Atoi(line[1:])
			if err != nil {
				return err
			}
			if _, err := io.CopyN(io.Discard, in, int64(n+2)); err != nil {
				return err
			}
		case !strings.HasPrefix(line, ":"):
			return errors.New(line)
		}
	}
	return nil
}
