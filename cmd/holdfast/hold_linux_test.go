package main_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// keeperOf returns the number of the keeper's process. The socket knows it, also when the lock is lost.
func keeperOf(b *bench, v variables) int {
	b.Helper()
	conn, err := net.Dial("unix", v["HOLDFAST_HOLD"])
	if err != nil {
		b.Fatalf("%v: %v", v, err)
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		b.Fatal(err)
	}
	var peer *unix.Ucred
	var perr error
	err = raw.Control(func(fd uintptr) {
		peer, perr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err := errors.Join(err, perr); err != nil {
		b.Fatal(err)
	}
	return int(peer.Pid)
}

// In an interactive shell a hold ends with the shell. Keys of the terminal do not reach the keeper.
func TestHoldInTerminal(t *testing.T) {
	s := newScreen(newBench(t).runtimeDir())
	s.keys("$H hold a; echo held=$?\n")
	s.see(`held=0`)
	pid := 0
	s.until("the hold", func() bool {
		code, out, _ := s.run("info", "-o", "json", "a")
		_, after, found := strings.Cut(out, `"pid": `)
		_, _ = fmt.Sscan(after, &pid)
		return code == 0 && found
	})
	s.keys("$H run b -- sh -c 'echo be''gun; exec sleep 1000'\n")
	s.see("begun")
	s.keys("\x03") // interrupts the job only
	s.keys("echo code=$?\n")
	s.see(`code=130`)
	s.keys("$H check a; echo check=$?\n") // the shell is enough to find the hold
	s.see(`check=0`)
	s.keys("exit\n")
	s.ends(pid)
	s.want(0, "run", "-n", "a", "--", "true")
}

// Another user can neither ask a keeper nor stand in for one.
func TestHoldOfAnotherUser(t *testing.T) {
	b := newBench(t)
	whom := b.asNobody()
	dir, err := os.MkdirTemp("", "hf")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	b = b.with("XDG_RUNTIME_DIR=" + dir)
	v := b.keep("a")
	as := func(args ...string) *process { // holdfast as the other user
		p := b.with(v.env()...).prepare(args...)
		p.SysProcAttr = &syscall.SysProcAttr{Credential: whom}
		p.begin()
		return p
	}
	for _, args := range [][]string{{"check"}, {"release"}, {"handoff"}} {
		if p := as(args...); p.code() != 69 || !strings.Contains(p.err.String(), "permission denied") {
			t.Errorf("%q: %s", args, p.err.String())
		}
	}
	// Even if the folder is open, the keeper does not answer.
	for _, d := range []string{dir, filepath.Join(dir, "holdfast")} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(v["HOLDFAST_HOLD"], 0o777); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"check"}, {"release"}, {"handoff"}} {
		if p := as(args...); p.code() != 77 || !strings.Contains(p.err.String(), "belongs to another user") {
			t.Errorf("%q: %s", args, p.err.String())
		}
	}
	b.with(v.env()...).want(0, "check")
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, stderr := b.want(78, "release", "a"); !strings.Contains(stderr, "other users may enter") {
		t.Error(stderr)
	}
}

// A socket that another user has made is not trusted, nor is a folder that others may enter or that
// a link leads to.
func TestForgedSocket(t *testing.T) {
	b := newBench(t)
	whom := b.asNobody()
	path := filepath.Join(b.dir, "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 64))
			fmt.Fprintln(c, `{"state":"held","name":"a","token":"7"}`)
			c.Close()
		}
	}()
	if err := os.Chmod(path, 0o777); err != nil {
		t.Fatal(err)
	}
	p := b.with("HOLDFAST_HOLD=" + path).prepare("check") // the socket belongs to root, the user is another one
	p.SysProcAttr = &syscall.SysProcAttr{Credential: whom}
	p.begin()
	if code := p.code(); code != 77 || !strings.Contains(p.err.String(), "belongs to another user") {
		t.Errorf("exit code %d: %s%s", code, p.out.String(), p.err.String())
	}
	b.with("HOLDFAST_HOLD="+path).want(0, "check") // the same user may say what it likes
	b.with("HOLDFAST_HOLD="+b.dir).want(76, "check")
	b.with("HOLDFAST_HOLD="+b.dir+"/none").want(76, "check")

	for name, c := range map[string]struct {
		make func(dir string) error
		want string
	}{
		"open": {func(dir string) error { return os.Mkdir(dir, 0o755) }, "other users may enter"},
		"link": {func(dir string) error { return os.Symlink(b.dir, dir) }, "is not a folder"},
		"file": {func(dir string) error { return os.WriteFile(dir, nil, 0o600) }, "is not a folder"},
		"foreign": {func(dir string) error {
			return os.Mkdir(dir, 0o700)
		}, "belongs to user"},
	} {
		tmp, err := os.MkdirTemp("", "hf")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(tmp)
		dir := filepath.Join(tmp, fmt.Sprintf("holdfast-hold-%d", os.Geteuid()))
		if err := c.make(dir); err != nil {
			t.Fatal(err)
		}
		if name == "foreign" {
			if err := os.Chown(dir, int(whom.Uid), -1); err != nil {
				t.Fatal(err)
			}
		}
		b := b.with("TMPDIR=" + tmp)
		if _, err := os.Stat(fmt.Sprintf("/run/user/%d", os.Geteuid())); err == nil {
			t.Skip("this user has a folder in /run/user")
		}
		for _, args := range [][]string{{"hold", "--max-hold", "1m", "a"}, {"release", "a"}} {
			if _, stderr := b.want(78, args...); !strings.Contains(stderr, c.want) {
				t.Errorf("%s: %q: %s", name, args, stderr)
			}
		}
	}
}

// No file can be created in the folder of the sockets: there is no hold, and no lock.
func TestHoldWithoutSpace(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a small file system")
	}
	b := newBench(t)
	dir, err := os.MkdirTemp("", "hf")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	// Room for the folder and nothing else.
	if err := unix.Mount("holdfast-test", dir, "tmpfs", 0, "size=16k,nr_inodes=2,mode=0700"); err != nil {
		t.Skip("cannot mount: ", err)
	}
	defer func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }()
	b = b.with("XDG_RUNTIME_DIR=" + dir)
	_, stderr := b.want(78, "hold", "--max-hold", "1m", "a")
	if !strings.Contains(stderr, "no space left on device") {
		t.Error(stderr)
	}
	b.want(0, "run", "-n", "a", "--", "true")
}

// Without a home folder hold works where the store and the folder of sockets do.
func TestHoldWithoutHome(t *testing.T) {
	b := newBench(t).runtimeDir().with("HOME=", "XDG_STATE_HOME=")
	b.env = append(b.env, "HOLDFAST_URL=sqlite:"+b.dir+"/own.db")
	b.keep("a")
	b.want(0, "check", "a")
	b.want(0, "release", "a")
}

// The keeper has no password in its arguments or its environment.
func TestHoldKeepsPassword(t *testing.T) {
	b := newBench(t).runtimeDir()
	b = b.at(passworded["redis"](t, b))
	v := b.keep("a")
	pid := keeperOf(b, v)
	for _, file := range []string{"cmdline", "environ"} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
		if err != nil || strings.Contains(string(text), canary) {
			t.Errorf("%s: %v: %q", file, err, text)
		}
	}
	for _, args := range [][]string{{"check", "a"}, {"handoff", "a"}, {"release", "a"}} {
		if _, out, stderr := b.run(args...); strings.Contains(out+stderr, canary) {
			t.Errorf("%q: %s%s", args, out, stderr)
		}
	}
	b.ends(pid)
}
