package sqlite

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/drivertest"
)

// forger writes to the sockets of sessions, as their user and root can.
func forger(path func(testing.TB) string) *drivertest.Forger {
	var mu sync.Mutex
	open := map[testing.TB]*store{} // one handle for each test
	of := func(t testing.TB) *store {
		t.Helper()
		mu.Lock()
		defer mu.Unlock()
		if open[t] == nil {
			open[t] = openTest(t, path(t), nil).st
		}
		return open[t]
	}
	return &drivertest.Forger{
		Believed: true,
		Message:  func(id string, token uint64, _ string) string { return fmt.Sprintf("%s %d\n", id, token) },
		Send: func(t testing.TB, session, _ string, messages ...string) {
			t.Helper()
			st := of(t)
			var a address
			must(t, st.snapshot(t.Context(), func(c *conn, _ int64) error {
				ok, err := c.get(qSession, []any{session}, &a.bell, &a.file, &a.inode)
				if err == nil && !ok {
					err = errors.New("the session is not on record")
				}
				return err
			}))
			var packets []string // each with as many lines as fit
			for i, m := range messages {
				if n := len(packets) - 1; i > 0 && len(packets[n])+len(m) < maxPacket && strings.HasSuffix(packets[n], "\n") {
					packets[n] += m
				} else {
					packets = append(packets, m[:min(len(m), 1<<16)]) // a datagram cannot be longer
				}
			}
			for _, m := range packets {
				err := st.notifier.Notify(st.locate(a.bell), []byte(m))
				// while the socket is full
				for end := time.Now().Add(time.Minute); errors.Is(err, syscall.EAGAIN) && time.Now().Before(end); {
					runtime.Gosched()
					err = st.notifier.Notify(st.locate(a.bell), []byte(m))
				}
				must(t, err)
			}
		},
	}
}
