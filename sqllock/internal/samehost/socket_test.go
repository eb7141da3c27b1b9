//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package samehost

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-lock/holdfast/sqllock/internal/host"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 30 * time.Second

// folder returns a new folder with a short path.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "hf-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// member is a Socket, and what it has heard.
type member struct {
	*Socket
	heard chan string
}

func join(t *testing.T, dir, kind, id string) *member {
	t.Helper()
	m := &member{heard: make(chan string, 100)}
	m.Socket = New(dir, kind, id, func(msg []byte) { m.heard <- string(msg) }, func() bool { return false })
	t.Cleanup(func() { _ = m.Close() })
	return m
}

func (m *member) hears(t *testing.T, want string) {
	t.Helper()
	select {
	case got := <-m.heard:
		if got != want {
			t.Errorf("heard %q; want %q", got, want)
		}
	case <-time.After(patience):
		t.Fatalf("%q was not heard", want)
	}
}

// eventually waits until a listing is old enough to be made again.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("this never happened: %s", what)
		}
	}
}

func exists(s *Socket) bool {
	_, err := os.Lstat(s.path(s.id))
	return err == nil
}

func TestSend(t *testing.T) {
	dir := filepath.Join(folder(t), "sockets")
	a, b, other := join(t, dir, "x", "a"), join(t, dir, "x", "b"), join(t, dir, "y", "b2")
	if a.Send("b", []byte("early")) {
		t.Error("sent to a Server that has not listened yet")
	}
	if _, err := os.Lstat(dir); err == nil {
		t.Error("a folder was made, and nobody has waited")
	}
	b.Listen()
	other.Listen()
	for _, name := range []string{"x-", "x-file", "x-\xff\"", "x-" + strings.Repeat("long", 60)} { // no sockets of Servers
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Log(err) // some file systems allow fewer names
		}
	}
	if fi, err := os.Lstat(dir); err != nil || fi.Mode().Perm() != 0o700 {
		t.Errorf("the folder: %v, %v", fi, err)
	}
	eventually(t, "a knows b", func() bool { return slices.Equal(a.Others(), []string{"b"}) })
	if all := b.Others(); len(all) > 0 {
		t.Errorf("b, of its kind alone, knows %q", all)
	}
	for _, id := range []string{"", ".", "../x-b", "c"} {
		if a.Send(id, []byte("z")) {
			t.Errorf("sent to %q", id)
		}
	}
	for _, m := range []string{"one", "one"} {
		if !a.Send("b", []byte(m)) {
			t.Fatal("not sent")
		}
	}
	b.hears(t, "one")
	b.hears(t, "one")
	b.Mute(true)
	if !a.Send("b", []byte("lost")) {
		t.Error("not sent to one that does not read")
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if len(b.heard) > 0 {
		t.Error("a lost message was heard")
	}
	if exists(b.Socket) || a.Send("b", []byte("late")) {
		t.Error("sent to a closed Server")
	}
	eventually(t, "a knows nobody", func() bool { return len(a.Others()) == 0 })
	if b.Listen(); exists(b.Socket) || b.Send("b2", nil) {
		t.Error("a closed Socket listens, or sends")
	}
}

// A killed process leaves its file. Whoever sends there, or begins to listen, removes it.
func TestKilled(t *testing.T) {
	dir := folder(t)
	a, b, c := join(t, dir, "x", "a"), join(t, dir, "x", "b"), join(t, dir, "y", "c")
	b.Listen()
	_ = b.Drop()
	if !exists(b.Socket) {
		t.Fatal("the file of a killed process is gone")
	}
	if a.Send("b", []byte("z")) || exists(b.Socket) {
		t.Error("a message to a killed process was sent, or its file is left")
	}
	d := join(t, dir, "y", "d")
	c.Listen()
	_ = c.Drop()
	d.Listen()
	a.Listen()
	if exists(c.Socket) || !exists(d.Socket) || !exists(a.Socket) {
		t.Error("a file of a killed process is left, or one of a living was removed")
	}
	if len(d.heard) > 0 {
		t.Error("a process was woken to find out whether it lives")
	}
}

// A process that does not read takes some messages, and Send never waits.
func TestFull(t *testing.T) {
	dir := folder(t)
	a := join(t, dir, "x", "a")
	b, err := host.Listen(a.path("b"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Close() }()
	sent := 0
	for a.Send("b", []byte("z")) {
		if sent++; sent > 1<<20 {
			t.Fatal("a socket that nobody reads takes everything")
		}
	}
	if sent == 0 || !exists(&Socket{dir: dir, kind: "x-", id: "b"}) {
		t.Errorf("%d messages were sent; the file must stay", sent)
	}
}

// A cleaner of temporary files removes the folder.
func TestCleaned(t *testing.T) {
	dir := filepath.Join(folder(t), "sockets")
	a, b := join(t, dir, "x", "a"), join(t, dir, "x", "b")
	b.Listen()
	_ = os.RemoveAll(dir)
	if a.Send("b", []byte("lost")) || len(a.Others()) > 0 {
		t.Error("sent to a folder that is gone")
	}
	b.Listen()
	if !a.Send("b", []byte("new")) {
		t.Fatal("not sent to the new socket")
	}
	b.hears(t, "new")
}

// Where sockets cannot be, nobody listens and nothing is sent.
func TestOff(t *testing.T) {
	base := folder(t)
	file := filepath.Join(base, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	open, link, foreign := filepath.Join(base, "open"), filepath.Join(base, "link"), filepath.Join(base, "foreign")
	for _, dir := range []string{open, foreign} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(folder(t), link); err != nil {
		t.Fatal(err)
	}
	places := map[string]string{
		"a file in the way": file, "below a file": filepath.Join(file, "x"), "open to others": open, "a link": link,
		"a long path":            filepath.Join(base, strings.Repeat("x", host.MaxPath)),
		"where nobody may write": "/proc/holdfast",
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(foreign, 1, 1); err != nil {
			t.Fatal(err)
		}
		places["another user's"] = foreign
	}
	for what, dir := range places {
		a, b := join(t, dir, "x", "a"), join(t, dir, "x", "b")
		b.Listen()
		if a.Send("b", []byte("z")) || len(a.Others()) > 0 || exists(b.Socket) {
			t.Errorf("%s: it is used", what)
		}
		// A socket that another made there is not used either.
		if bell, err := host.Listen(a.path("b")); err == nil {
			if a.Send("b", []byte("z")) || len(a.Others()) > 0 {
				t.Errorf("%s: a stranger's socket is used", what)
			}
			_ = bell.Close()
		}
	}
}

// look is called while it returns true, from each Listen on.
func TestLook(t *testing.T) {
	looks, more := make(chan bool), make(chan bool)
	s := New(folder(t), "x", "a", nil, func() bool {
		looks <- true
		return <-more
	})
	defer func() { _ = s.Close() }()
	began := time.Now()
	s.Listen()
	s.Listen()
	for _, again := range []bool{true, false} {
		<-looks
		more <- again
	}
	if took := time.Since(began); took < 2*Pause {
		t.Errorf("looked twice within %v", took)
	}
	s.Listen()
	<-looks
	more <- false
}

// A Server whose socket has lost its file, and cannot make another, still looks.
func TestLookWithoutFile(t *testing.T) {
	dir := filepath.Join(folder(t), "sockets")
	looks := make(chan bool, 1)
	s := New(dir, "x", "a", nil, func() bool {
		looks <- true
		return false
	})
	defer func() { _ = s.Close() }()
	s.Listen()
	<-looks
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.Listen()
	select {
	case <-looks:
	case <-time.After(patience):
		t.Error("it does not look")
	}
}

// While a look takes long, because the server does not answer, messages are heard.
func TestHeardDuringLook(t *testing.T) {
	dir := folder(t)
	a := join(t, dir, "x", "a")
	looks, end, heard := make(chan bool), make(chan bool), make(chan string, 1)
	b := New(dir, "x", "b", func(msg []byte) { heard <- string(msg) }, func() bool {
		looks <- true
		<-end
		return true
	})
	defer func() {
		close(end)
		go func() {
			for range looks { // there may be more before Close
			}
		}()
		_ = b.Close()
		close(looks)
	}()
	b.Listen()
	<-looks
	if !a.Send("b", []byte("z")) {
		t.Fatal("not sent")
	}
	select {
	case <-heard:
	case <-time.After(patience):
		t.Error("a message was not heard during a look")
	}
	end <- true
	<-looks
}

// A command that is started has no part in the socket.
func TestCommandInheritsNothing(t *testing.T) {
	dir := folder(t)
	a, b := join(t, dir, "x", "a"), join(t, dir, "x", "b")
	b.Listen()
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	_ = b.Drop()
	if a.Send("b", []byte("z")) {
		t.Error("the socket is alive without its process")
	}
}
