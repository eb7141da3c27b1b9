package sqltest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/hook"
	"github.com/holdfast-lock/holdfast/sqllock"
	"github.com/holdfast-lock/holdfast/sqllock/internal/samehost"
)

// Sockets is a server whose clients wake each other through sockets.
type Sockets struct {
	Dialect func() sqllock.Dialect
	Open    func() *sql.DB // a new pool
	DSN     string         // of such a pool
	Handing string         // a part of the statement that hands over

	// Wakes begins to count the wake-ups of a Server that the database server carries.
	Wakes func(t *testing.T, server string) (count func() int)
}

// proc is a session with its own Server, as a process has them. Nothing renews, and its leases last.
type proc struct {
	driver.Session
	t    *testing.T
	b    *sqllock.Server
	id   string // of the Server; known once it has held or waited
	name string // of its session
	asks int
}

func (x *Sockets) join(t *testing.T, cfg *sqllock.Config, dir string) *proc {
	t.Helper()
	return x.joinOn(t, x.Open(), cfg, dir)
}

func (x *Sockets) joinOn(t *testing.T, db *sql.DB, cfg *sqllock.Config, dir string) *proc {
	t.Helper()
	b := sqllock.New(db, x.Dialect(), cfg)
	if dir != "" {
		SocketsIn(dir, b)
	}
	p := &proc{t: t, b: b, name: strings.ToLower(rand.Text())}
	s, err := b.Open(t.Context(), driver.SessionConfig{ID: p.name, TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	p.Session = s
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = s.Close(ctx)
		_ = b.Close()
	})
	return p
}

func (p *proc) ask(mode driver.Mode) (*driver.Request, driver.Reply) {
	p.t.Helper()
	p.asks++
	r := &driver.Request{ID: fmt.Sprintf("%s-%d", p.name, p.asks), Name: p.t.Name(), Mode: mode, N: 1, Wait: true}
	rep, err := p.Acquire(p.t.Context(), r)
	if err != nil {
		p.t.Fatal(err)
	}
	return r, rep
}

func (p *proc) take() driver.Hold {
	p.t.Helper()
	r, rep := p.ask(driver.Exclusive)
	if rep.Token == 0 {
		p.t.Fatal("a free name is not granted")
	}
	return driver.Hold{Name: r.Name, ID: r.ID, Token: rep.Token}
}

// wait makes p wait, and returns when the other process can know of its socket, if it has one.
func (p *proc) wait(mode driver.Mode, other *proc, listens bool) (*driver.Request, <-chan uint64) {
	p.t.Helper()
	r, rep := p.ask(mode)
	if rep.Token != 0 {
		p.t.Fatal("a lock is granted that another holds")
	}
	p.id = hook.SQLServerID(p.b)
	if listens {
		until(p.t, "the socket is known", func() bool { return slices.Contains(SocketOf(other.b).Others(), p.id) })
	}
	return r, rep.Wake
}

func (p *proc) release(h driver.Hold) {
	p.t.Helper()
	if err := p.Release(p.t.Context(), h, 0); err != nil {
		p.t.Fatal(err)
	}
}

// granted waits for the push of a grant, which must be on record.
func (p *proc) granted(r *driver.Request, wake <-chan uint64) driver.Hold {
	p.t.Helper()
	select {
	case token := <-wake:
		rec, err := p.b.Inspect(p.t.Context(), r.Name)
		is := func(h driver.Holder) bool { return h.ID == r.ID && h.Token == token }
		if err != nil || !slices.ContainsFunc(rec.Holders, is) {
			p.t.Fatalf("token %d was pushed to %s; on record is %+v, %v", token, r.ID, rec, err)
		}
		return driver.Hold{Name: r.Name, ID: r.ID, Token: token}
	case <-time.After(time.Minute):
		p.t.Fatal("never woken")
		return driver.Hold{}
	}
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("this never happened: %s", what)
		}
	}
}

// Run hands locks over between processes of one host and of several.
func (x *Sockets) Run(t *testing.T) {
	shared, off := shortDir(t), &sqllock.Config{NoSockets: true}
	// no Server's, and no text of a statement
	if err := os.WriteFile(filepath.Join(shared, x.Dialect().Name()+"-\xff"), nil, 0o600); err != nil {
		t.Log(err) // not every file system allows such a name
	}
	for _, c := range []struct {
		what           string
		from, to       *sqllock.Config
		fromDir, toDir string
		hurt           func(to *proc)
		byServer       bool
	}{
		{what: "one host", fromDir: shared, toDir: shared},
		{what: "two folders", fromDir: shared, toDir: shortDir(t), byServer: true},
		{what: "a long path", fromDir: shared, toDir: filepath.Join(shared, strings.Repeat("x", 200)), byServer: true},
		{what: "no folder", fromDir: shared, toDir: "/proc/holdfast", byServer: true},
		{what: "waiter without sockets", to: off, fromDir: shared, toDir: shared, byServer: true},
		{what: "holder without sockets", from: off, fromDir: shared, toDir: shared, byServer: true},
		{what: "the waiter's socket is dead", fromDir: shared, toDir: shared, byServer: true,
			hurt: func(to *proc) { _ = SocketOf(to.b).Drop() }},
		{what: "the waiter's socket is closed", fromDir: shared, toDir: shared, byServer: true,
			hurt: func(to *proc) { _ = SocketOf(to.b).Close() }},
		// as when the holder's process was killed between its commit and its message
		{what: "the message is lost", fromDir: shared, toDir: shared, hurt: func(to *proc) { SocketOf(to.b).Mute(true) }},
	} {
		t.Run(c.what, func(t *testing.T) {
			a, b := x.join(t, c.from, c.fromDir), x.join(t, c.to, c.toDir)
			h := a.take()
			r, wake := b.wait(driver.Exclusive, a, !c.byServer || c.hurt != nil)
			count := x.Wakes(t, b.id)
			if c.hurt != nil {
				c.hurt(b)
			}
			began := time.Now()
			a.release(h)
			got := b.granted(r, wake)
			t.Logf("after %v", time.Since(began))
			// A waiter that was about to sleep may see its grant before the server carries the wake-up.
			if c.byServer {
				until(t, "the server carries a wake-up", func() bool { return count() > 0 })
			} else if n := count(); n > 0 {
				t.Errorf("the server has carried %d wake-ups", n)
			}
			b.release(got)
		})
	}
	t.Run("readers", func(t *testing.T) {
		a, b := x.join(t, nil, shared), x.join(t, nil, shared)
		h := a.take()
		first, wake1 := b.wait(driver.Shared, a, true)
		second, wake2 := b.wait(driver.Shared, a, true)
		count := x.Wakes(t, b.id)
		a.release(h)
		b.release(b.granted(first, wake1))
		b.release(b.granted(second, wake2))
		if n := count(); n > 0 {
			t.Errorf("the server has carried %d wake-ups", n)
		}
	})
	t.Run("again and late", func(t *testing.T) { x.late(t, shared) })
	t.Run("a full socket", func(t *testing.T) { x.full(t, shortDir(t)) })
	t.Run("a late adoption", func(t *testing.T) { x.adopted(t, shortDir(t)) })
	t.Run("an unanswered release", func(t *testing.T) { x.unanswered(t, shortDir(t)) })
}

// late repeats messages, and sends them when their requests are over.
func (x *Sockets) late(t *testing.T, dir string) {
	a, b := x.join(t, nil, dir), x.join(t, nil, dir)
	tell := func(r *driver.Request, token uint64) {
		t.Helper()
		if !hook.SQLTell(a.b, b.id, r.Name, r.ID, token) {
			t.Fatal("the message was not sent")
		}
	}
	h := a.take()
	first, wake := b.wait(driver.Exclusive, a, true)
	a.release(h)
	got := b.granted(first, wake)
	tell(first, got.Token)
	if changes, err := b.Renew(t.Context(), []driver.Hold{got}); err != nil || len(changes) > 0 {
		t.Errorf("a message came twice, and then: %+v, %v", changes, err)
	}
	b.release(got)
	h = a.take()
	second, wakeSecond := b.wait(driver.Exclusive, a, true)
	tell(first, got.Token) // of an earlier request, and for another one of the session
	tell(second, got.Token)
	if err := b.Cancel(t.Context(), second.Name, second.ID); err != nil {
		t.Fatal(err)
	}
	tell(second, h.Token+1)
	third, wakeThird := b.wait(driver.Exclusive, a, true)
	tell(second, h.Token+1)
	rec, err := a.b.Inspect(t.Context(), h.Name)
	if err != nil || len(rec.Holders) != 1 || rec.Holders[0].Token != h.Token || rec.Waiting != 1 {
		t.Errorf("on record: %+v, %v", rec, err)
	}
	a.release(h)
	got = b.granted(third, wakeThird) // after all others, since a socket keeps the order
	select {
	case token := <-wakeSecond:
		t.Errorf("a cancelled request was woken with %d", token)
	default:
	}
	b.release(got)
}

// full hands over to a process whose socket has no room, as that of a stopped one.
func (x *Sockets) full(t *testing.T, dir string) {
	a, b := x.join(t, nil, dir), x.join(t, &sqllock.Config{NoSockets: true}, dir)
	h := a.take()
	r, wake := b.wait(driver.Exclusive, a, false)
	stopped := fill(t, dir, a, b)
	defer stopped()
	count := x.Wakes(t, b.id)
	a.release(h)
	b.release(b.granted(r, wake))
	until(t, "the server carries a wake-up", func() bool { return count() > 0 })
}

// shortDir returns a new folder with a path that is short enough for sockets.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "hf-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// unanswered loses the answer to a release. When the release is repeated, the waiter is told.
func (x *Sockets) unanswered(t *testing.T, dir string) {
	open := x.Open()
	breaking := OpenBreaking(t, open, x.DSN)
	a := x.joinOn(t, breaking.DB, &sqllock.Config{Listen: open}, dir)
	b := x.join(t, &sqllock.Config{NoSockets: true}, dir)
	h := a.take()
	r, _ := b.wait(driver.Exclusive, a, false)
	heard := make(chan string, 10)
	s := samehost.New(dir, b.b.Name(), b.id, func(msg []byte) { heard <- string(msg) }, func() bool { return false })
	defer func() { _ = s.Close() }()
	s.Listen()
	until(t, "the socket is known", func() bool { return slices.Contains(SocketOf(a.b).Others(), b.id) })
	breaking.ArmAt(x.Handing, Sent)
	err := a.Release(t.Context(), h, 0)
	if at := breaking.Disarm(); at == "" || err == nil {
		t.Fatalf("no answer was lost: %v", err)
	}
	if !hook.SQLTell(a.b, b.id, "n", "mark", 1) {
		t.Fatal("the mark was not sent")
	}
	if msg := <-heard; !strings.HasPrefix(msg, "mark ") {
		t.Errorf("heard %q, and the release was not answered", msg)
	}
	if err := a.Release(t.Context(), h, 0); err != nil && !driver.IsOver(err) {
		t.Fatalf("the repeated release: %v", err)
	}
	select {
	case msg := <-heard:
		if !strings.HasPrefix(msg, r.ID+" ") {
			t.Errorf("heard %q; want a message for %s", msg, r.ID)
		}
	case <-time.After(time.Minute):
		t.Error("nobody was told")
	}
}

// fill makes a socket for b that nobody reads, and lets a send there until it is full.
func fill(t *testing.T, dir string, a, b *proc) (stop func()) {
	t.Helper()
	entered, release := make(chan bool), make(chan bool)
	s := samehost.New(dir, b.b.Name(), b.id, func([]byte) {
		entered <- true
		<-release
	}, func() bool { return false })
	s.Listen()
	until(t, "the socket is known", func() bool { return slices.Contains(SocketOf(a.b).Others(), b.id) })
	if !hook.SQLTell(a.b, b.id, "n", "x-1", 1) {
		t.Fatal("an empty socket takes nothing")
	}
	<-entered
	for n := 0; hook.SQLTell(a.b, b.id, "n", "x-1", 1); n++ {
		if n > 1<<20 {
			t.Fatal("a socket that nobody reads takes everything")
		}
	}
	return func() {
		go func() {
			for range entered {
			}
		}()
		close(release)
		_ = s.Close()
		close(entered)
	}
}

// adopted notifies an adopter of its grant before it has the answer that it has the grant: the giver
// releases, too late, and that repeats the notification. The adopter must not give the grant back.
func (x *Sockets) adopted(t *testing.T, dir string) {
	open := x.Open()
	breaking := OpenBreaking(t, open, x.DSN)
	a, b := x.join(t, nil, dir), x.joinOn(t, breaking.DB, &sqllock.Config{Listen: open}, dir)
	h := a.take()
	r, _ := b.wait(driver.Exclusive, a, true) // so b listens
	if err := b.Cancel(t.Context(), r.Name, r.ID); err != nil {
		t.Fatal(err)
	}
	id := b.name + "-adopted"
	holds := func() bool {
		rec, err := a.b.Inspect(t.Context(), h.Name)
		return err == nil && len(rec.Holders) == 1 && rec.Holders[0].ID == id
	}
	breaking.ArmAt("UPDATE hf_lock SET kind = ", Unanswered)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- b.Adopt(ctx, h, id, "") }()
	until(t, "it is adopted", holds)
	if err := a.Release(t.Context(), h, 0); !driver.IsOver(err) {
		t.Errorf("the giver has released what it gave: %v", err)
	}
	cancel() // nobody answers
	if err := <-done; err == nil || breaking.Disarm() == "" {
		t.Fatalf("the adoption was answered: %v", err)
	}
	if !holds() {
		t.Error("the adopter has given back what it adopted")
	}
	if err := b.Adopt(t.Context(), h, id, ""); err != nil {
		t.Errorf("Adopt again: %v", err)
	}
}
