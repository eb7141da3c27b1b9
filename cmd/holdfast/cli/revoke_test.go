package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/memlock"
)

// revocable returns a client and a lease of it.
func revocable(t *testing.T) (*holdfast.Client, *holdfast.Lease) {
	t.Helper()
	c, err := holdfast.New(t.Context(), memlock.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	l, err := c.Mutex("x").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return c, l
}

// When stop returns, nothing is reported any more: the caller then closes the queue of reports. A
// report that is under way delays it.
func TestNoReportAfterStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, l := revocable(t)
		task := &task{a: &app{stderr: t.Output()}, o: &taskOptions{}}
		reporting, goOn := make(chan struct{}), make(chan struct{})
		asked, stop := task.tellRevoked(&hold{lease: l, parts: []*holdfast.Lease{l}}, func(func()) {
			close(reporting)
			<-goOn
		})
		if err := c.Revoke(t.Context(), "x", l.Token(), "why"); err != nil {
			t.Fatal(err)
		}
		<-asked
		<-reporting
		stopped := make(chan struct{})
		go func() { stop(); close(stopped) }()
		synctest.Wait()
		select {
		case <-stopped:
			t.Error("stop has returned while a report was under way")
		default:
		}
		close(goOn)
		<-stopped
		if err := errors.Join(l.Release(), c.Close(t.Context())); err != nil {
			t.Error(err)
		}
	})
}

// A command may end because of a request, or lose its lease after it, before the request has been
// reported. It is reported all the same, but nothing is said of what happens next.
func TestReportAfterTheCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, l := revocable(t)
		h := &hold{lease: l, parts: []*holdfast.Lease{l}}
		if err := c.Revoke(t.Context(), "x", l.Token(), "why"); err != nil {
			t.Fatal(err)
		}
		<-holdfast.Revoked(l.Context(t.Context()))
		if err := l.Release(); err != nil {
			t.Fatal(err)
		}
		var said bytes.Buffer
		task := &task{a: &app{stderr: &said}, o: &taskOptions{}}
		const commands = 100
		for range commands {
			_, stop := task.tellRevoked(h, func(report func()) { report() })
			stop()
		}
		begin, end := strings.Count(said.String(), "x: asked to release it by "), strings.Count(said.String(), ": \"why\"\n")
		if begin != commands || end != commands {
			t.Errorf("%d of %d commands report the request, %d end with the reason: %s", begin, commands, end, said.String())
		}
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// onlyOne is a store that takes what belongs to the first request, and refuses that of the second.
type onlyOne struct {
	driver.Backend
	added atomic.Int32
}

func (s *onlyOne) AddHistory(ctx context.Context, name, text string, keep int) error {
	if s.added.Add(1) > 2 { // a request takes two entries
		return fmt.Errorf("%w: enough", driver.ErrRefused)
	}
	return s.Backend.AddHistory(ctx, name, text, keep)
}

// If one of several holders cannot be asked, the others that were asked are reported all the same.
func TestRevokeOfSome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := holdfast.New(t.Context(), &onlyOne{Backend: memlock.New()}, nil)
		if err != nil {
			t.Fatal(err)
		}
		var readers []*holdfast.Lease
		for range 2 {
			l, err := c.RWMutex("x").RLock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			readers = append(readers, l)
		}
		var out strings.Builder
		s := &session{Client: c, say: t.Logf}
		err = s.revoke(t.Context(), &out, "x", &revokeOptions{wait: seconds{set: true}})
		if !errors.Is(err, holdfast.ErrRefused) {
			t.Errorf("revoke: %v; want ErrRefused", err)
		}
		if text := out.String(); strings.Count(text, "asked: x, token ") != 1 || strings.Count(text, "\n") != 1 {
			t.Errorf("reported %q; want one of %d and %d", text, readers[0].Token(), readers[1].Token())
		}
		if err := errors.Join(readers[0].Release(), readers[1].Release(), c.Close(t.Context())); err != nil {
			t.Error(err)
		}
	})
}

// A second request says that the holder was asked before, by whom and when: the holder sees one only.
func TestRevokeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, l := revocable(t)
		s := &session{Client: c, say: t.Logf}
		revoke := func(reason string) string {
			var out strings.Builder
			if err := s.revoke(t.Context(), &out, "x", &revokeOptions{reason: reason}); err != nil {
				t.Fatal(err)
			}
			return out.String()
		}
		if text := revoke("first"); strings.Contains(text, "before") {
			t.Errorf("the first request: %s", text)
		}
		time.Sleep(7 * time.Second)
		again := fmt.Sprintf("\nIt was asked before, by %s, 7s ago: \"first\". A holder is told of one request only", me(t, c))
		if text := revoke("second"); !strings.Contains(text, again) {
			t.Errorf("the second request: %s; want %s", text, again)
		}
		time.Sleep(10 * time.Second)
		if n := l.Revocation(); n == nil || n.Reason != "first" {
			t.Errorf("the holder was told of %v; want the first request", n)
		}
		if err := errors.Join(l.Release(), c.Close(t.Context())); err != nil {
			t.Error(err)
		}
	})
}

// me returns the client of a lock as messages name it.
func me(t *testing.T, c *holdfast.Client) string {
	t.Helper()
	r, err := c.Inspect(t.Context(), "x")
	if err != nil || len(r.Holders) != 1 {
		t.Fatalf("%v, %v", r.Holders, err)
	}
	return who(&r.Holders[0])
}
