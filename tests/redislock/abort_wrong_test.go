package redislock_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-lock/holdfast/driver"
)

// wrong reports what is wrong with the name.
func (z *scene) wrong() string {
	published, _ := z.do(z.t, "LRANGE", "step:published", "0", "-1").AsStrSlice()
	rec, err := z.Inspect(z.ctx, z.name)
	if err != nil {
		return "Inspect: " + err.Error()
	}
	for _, message := range published {
		id, text, _ := strings.Cut(message, " ")
		token, _ := strconv.ParseUint(text, 10, 64)
		switch {
		case token == 1 && (rec.Kind != driver.Latch || rec.Count != 0):
			return fmt.Sprintf("published %q of %+v", message, rec)
		case token > 1 && !slices.ContainsFunc(rec.Holders,
			func(h driver.Holder) bool { return h.ID == id && h.Token == token }):
			return fmt.Sprintf("published %q, which is not on record: %+v", message, rec)
		}
	}
	if z.latch {
		return z.wrongLatch()
	}
	if w := z.crowded(rec); w != "" {
		return w
	}
	if w := z.wrongKeys(rec); w != "" {
		return w
	}
	// All requests renew, and learn which of them has the lock.
	last := rec.Token
	for letter, h := range z.ids {
		if err := z.renew(letter); err != nil {
			return fmt.Sprintf("%s renews: %v", letter, err)
		}
		last = max(last, h.Token)
	}
	if rec, err = z.Inspect(z.ctx, z.name); err != nil {
		return "Inspect: " + err.Error()
	}
	if w := z.crowded(rec); w != "" {
		return w
	}
	if w := z.leaked(rec); w != "" {
		return w
	}
	// A new request waits or is granted, and has the lock once all others have left.
	if err := z.x("c4"); err != nil && !errors.Is(err, driver.ErrKind) {
		return "Acquire: " + err.Error()
	}
	// A lock of Redisson without an end would never be free again, should all clients in Go die.
	left, _ := z.do(z.t, "PTTL", z.name).AsInt64()
	if text, _ := z.do(z.t, "TYPE", z.name).ToString(); text == "hash" && left < 0 {
		return "Redisson's key lasts for ever"
	}
	for letter := range z.ids {
		if err := z.cancel(letter); err != nil {
			return fmt.Sprintf("%s cancels: %v", letter, err)
		}
	}
	if rec, err = z.Inspect(z.ctx, z.name); err != nil {
		return "Inspect: " + err.Error()
	}
	for _, h := range rec.Holders {
		if !h.Kept && (!z.kind.shared() || !strings.Contains(h.Info, `"prog":"Redisson"`)) {
			return fmt.Sprintf("held without a request: %+v", rec)
		}
		if err := z.Break(z.ctx, z.name, h.Token); err != nil {
			return fmt.Sprintf("Break: %v", err)
		}
	}
	err = z.SetLimit(z.ctx, z.name, 0)
	if err != nil && !errors.Is(err, driver.ErrGone) && !errors.Is(err, driver.ErrKind) {
		return "removal of the limit: " + err.Error()
	}
	if z.kind.shared() && !rec.Set && len(rec.Holders) > 0 {
		z.do(z.t, "DEL", z.name) // it ends by itself
	}
	delete(z.ids, "c4")
	if err := z.x("c4"); err != nil || z.ids["c4"].Token <= last {
		return fmt.Sprintf("a newcomer: token %d after %d, %v", z.ids["c4"].Token, last, err)
	}
	if err := z.release("c4", 0); err != nil {
		return fmt.Sprintf("its release: %v", err)
	}
	// Redisson's queue has no end: what is left in it would stay.
	for _, key := range []string{"redisson_lock_queue:{" + z.name + "}", "redisson_lock_timeout:{" + z.name + "}"} {
		if n, _ := z.do(z.t, "EXISTS", key).AsInt64(); z.kind == fair && n > 0 {
			return key + " is left"
		}
	}
	return ""
}

// crowded reports whether there are more holders than allowed.
func (z *scene) crowded(rec driver.Record) string {
	n, exclusive := 0, 0
	for _, h := range rec.Holders {
		if n += h.N; h.Mode == driver.Exclusive {
			exclusive++
		}
	}
	if rec.Kind == driver.Semaphore && n > rec.Limit || exclusive > 0 && len(rec.Holders) > 1 {
		return fmt.Sprintf("too many hold it: %+v", rec)
	}
	return ""
}

// wrongKeys reports whether Redisson's keys have less than the record, or more permits than there are.
func (z *scene) wrongKeys(rec driver.Record) string {
	if !z.kind.shared() {
		return ""
	}
	if rec.Kind == driver.Semaphore {
		free, _ := z.do(z.t, "GET", z.name).AsInt64()
		held, _ := z.do(z.t, "ZCARD", "{"+z.name+"}:timeout").AsInt64()
		if most := int64(2); free+held > most && !strings.Contains(z.name, "/more/") {
			return fmt.Sprintf("%d permits are free and %d held, of %d: %+v", free, held, most, rec)
		}
		return ""
	}
	if rec.Kind != driver.Lock {
		return ""
	}
	fields, _ := z.do(z.t, "HLEN", z.name).AsInt64()
	if fields < int64(len(rec.Holders)) {
		return fmt.Sprintf("Redisson's key has %d fields: %+v", fields, rec)
	}
	return ""
}

// leaked reports whether permits are neither held nor granted to the first waiter, for which they
// suffice.
func (z *scene) leaked(rec driver.Record) string {
	n := 0
	for _, h := range rec.Holders {
		n += h.N
	}
	if rec.Kind == driver.Semaphore && len(rec.Waiters) > 0 && n+rec.Waiters[0].N <= rec.Limit {
		return fmt.Sprintf("the first waiter fits: %+v", rec)
	}
	return ""
}

// wrongLatch counts the latch down.
func (z *scene) wrongLatch() string {
	if err := errors.Join(z.await("b"), z.await("c")); err != nil {
		if !errors.Is(err, driver.ErrGone) {
			return "Await: " + err.Error()
		}
		if _, err := z.a.SetCount(z.ctx, z.name, 2); err != nil { // it was removed, or not created yet
			return "SetCount: " + err.Error()
		}
	}
	var left int64
	var err error
	for _, id := range []string{"one", "two", "three"} {
		if left, err = z.a.CountDown(z.ctx, z.name, id); err != nil {
			return "CountDown: " + err.Error()
		}
	}
	if left != 0 {
		return fmt.Sprintf("%d left", left)
	}
	if reply, err := z.b.Await(z.ctx, z.name, newID()); err != nil || reply.Token != 1 {
		return fmt.Sprintf("Await: %+v, %v", reply, err)
	}
	return ""
}
