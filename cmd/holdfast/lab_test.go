//go:build unix

package main_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// labBench is a bench for tests that start servers.
func labBench(t *testing.T) *bench {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: this test starts servers")
	}
	b := newBench(t)
	b.env = append(b.env, "TMPDIR="+b.dir)
	return b
}

func TestLabList(t *testing.T) {
	b := newBench(t)
	names, _ := b.want(0, "lab", "list", "-o", "name")
	ids := strings.Fields(names)
	if len(ids) < 18 || !slices.Contains(ids, "setpx-del") || strings.Count(names, "\n") != len(ids) {
		t.Errorf("%q", names)
	}
	out, _ := b.want(0, "lab", "list", "-o", "json")
	var list struct {
		Schema     string
		Algorithms []struct{ ID, Title, Class, Acquire, Release, Habit, Why, How string }
	}
	if err := json.Unmarshal([]byte(out), &list); err != nil || list.Schema != "holdfast/v1" ||
		len(list.Algorithms) != len(ids) {
		t.Fatalf("%v: %s", err, out)
	}
	for i, r := range list.Algorithms {
		if r.ID != ids[i] || r.Title == "" || r.Class == "" || r.Acquire == "" || r.Release == "" || r.Habit == "" ||
			r.Why == "" || r.How == "" {
			t.Errorf("%+v", r)
		}
	}
	if out, _ := b.want(0, "lab", "list"); !strings.HasPrefix(out, "ID") || strings.Count(out, "\n") != len(ids)+1 {
		t.Errorf("%s", out)
	}
}

func TestLabShow(t *testing.T) {
	b := newBench(t)
	text, _ := b.want(0, "lab", "show", "setpx-del", "poll-once")
	for _, want := range []string{"SET NX PX, DEL (redis)", "A unlocks\n", "Where one meets it: what most tutorials show",
		"no second grant inside a lease (S1)",
		"With holdfast: ", "holdfast lab run setpx-del\n", "poll-once: waiting by one try",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing:\n%s", want, text)
		}
	}
	b.want(64, "lab", "show")
	b.want(64, "lab", "show", "nothing")
}

// An event is shown for each line of input, and the rest at its end.
func TestLabStep(t *testing.T) {
	b := labBench(t)
	p := b.prepare("lab", "run", "setnx-expire", "--step")
	in, err := p.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.begin()
	shows := func(text string) {
		t.Helper()
		b.until(text, func() bool { return strings.Contains(p.out.String(), text) })
	}
	shows("time  holds")
	if out := p.out.String(); strings.Contains(out, "SETNX R 1 → 1\n") {
		t.Errorf("an event is shown before it is asked for:\n%s", out)
	}
	if _, err := in.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
	shows("SETNX R 1 → 1\n")
	if out := p.out.String(); strings.Contains(out, "crashes here") {
		t.Errorf("two events are shown:\n%s", out)
	}
	_ = in.Close()
	if code := p.code(); code != 0 || !strings.Contains(p.out.String(), "holdfast survived") {
		t.Errorf("exit code %d, and the rest is not shown:\n%s", code, p.out.String())
	}
	b.want(64, "lab", "run", "setpx-del", "setpx-lua", "--step")
	b.want(64, "lab", "run", "setpx-del", "--step", "-o", "summary")
}

// The same run as a timeline, as JSON, in a line, and as a page.
func TestLabRun(t *testing.T) {
	b := labBench(t)
	text, _ := b.want(0, "lab", "run", "setnx-getset-clock", "--html", filepath.Join(b.dir, "lab.html"), "--svg",
		filepath.Join(b.dir, "lab.svg"))
	for _, want := range []string{"SETNX R ", "holds the lock", "A and B both believe", "it broke as documented (S1)",
		"holdfast survived", `"lab A" holds the lock`} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in:\n%s", want, text)
		}
	}
	if strings.Contains(text, "hf:lab:") {
		t.Errorf("a prefix is shown:\n%s", text)
	}
	page, err := os.ReadFile(filepath.Join(b.dir, "lab.html"))
	if err != nil || !bytes.HasPrefix(page, []byte("<!DOCTYPE html>")) ||
		!bytes.Contains(page, []byte("A and B both believe")) {
		t.Errorf("%v: %.300s", err, page)
	}
	picture, err := os.ReadFile(filepath.Join(b.dir, "lab.svg"))
	if err != nil || !bytes.HasPrefix(picture, []byte("<svg ")) ||
		!bytes.Contains(picture, []byte("A and B both believe")) {
		t.Errorf("%v: %.300s", err, picture)
	}

	out, _ := b.want(0, "lab", "run", "setnx-getset-clock", "--json")
	var run struct {
		Schema string
		OK     bool
		Runs   []struct {
			ID, Class       string
			Broke, Survived bool
			Algorithm       struct {
				Found    []struct{ Class, Promise, Text string }
				Timeline []struct {
					AtMS                     float64 `json:"at_ms"`
					Lane, Kind, Text, Answer string
					Holders                  []string
				}
			}
			Holdfast struct{ Timeline []struct{ Lane string } }
		}
	}
	if err := json.Unmarshal([]byte(out), &run); err != nil || len(run.Runs) != 1 {
		t.Fatalf("%v: %s", err, out)
	}
	r := run.Runs[0]
	if !run.OK || run.Schema != "holdfast/v1" || r.ID != "setnx-getset-clock" || r.Class != "S1" || !r.Broke ||
		!r.Survived || len(r.Holdfast.Timeline) == 0 {
		t.Errorf("%s", out)
	}
	if !slices.ContainsFunc(r.Algorithm.Found, func(f struct{ Class, Promise, Text string }) bool {
		return f.Class == "S1"
	}) {
		t.Errorf("S1 is not among %+v", r.Algorithm.Found)
	}
	both, last := false, 0.0
	for _, e := range r.Algorithm.Timeline {
		both = both || slices.Equal(e.Holders, []string{"A", "B"})
		if e.AtMS < last {
			t.Errorf("%v comes after %v", e.AtMS, last)
		}
		last = e.AtMS
	}
	if !both {
		t.Errorf("A and B never held both: %s", out)
	}

	out, _ = b.want(0, "lab", "run", "setnx-getset-clock", "-o", "summary")
	if !strings.Contains(out, "setnx-getset-clock") || !strings.Contains(out, "S1") || strings.Count(out, "\n") != 1 {
		t.Errorf("%q", out)
	}
	if left, err := filepath.Glob(filepath.Join(b.dir, "holdfast-lab*")); err != nil || len(left) > 0 {
		t.Errorf("left: %v %v", left, err)
	}
}

func TestLabUsage(t *testing.T) {
	b := newBench(t)
	for _, c := range []struct {
		code int
		says string
		args []string
	}{
		{64, `there is no algorithm "\x1b"`, []string{"lab", "run", "all", "\x1b"}},
		{64, "--svg draws one algorithm, not 2", []string{"lab", "run", "setpx-del", "setpx-lua", "--svg", b.dir + "/x.svg"}},
		{64, "--svg " + b.dir + "/none/x.svg: ", []string{"lab", "run", "setpx-del", "--svg", b.dir + "/none/x.svg"}},
		{78, "one Redis server", []string{"--store", "redis+cluster://127.0.0.1:1", "lab", "run", "setpx-del"}},
		{78, "one Redis server", []string{"--store", "sqlite:" + b.dir + "/x", "lab", "run", "setpx-del"}},
		{69, "", []string{"--store", "redis://u:c4nary@127.0.0.1:1", "lab", "run", "setpx-del"}},
	} {
		_, stderr := b.want(c.code, c.args...)
		if !strings.Contains(stderr, c.says) || strings.Contains(stderr, "c4nary") || strings.Contains(stderr, "\x1b") {
			t.Errorf("%v: %q", c.args, stderr)
		}
	}
	b.env[0] = "PATH=" + b.dir
	if _, stderr := b.want(69, "lab", "run", "setpx-del"); !strings.Contains(stderr, "apt-get install redis-server") {
		t.Errorf("%q", stderr)
	}
}

// The lab uses the user's server, leaves nothing there, does not show the password, and ignores
// HOLDFAST_URL. Algorithms that need servers of their own report that, if none is installed.
func TestLabStore(t *testing.T) {
	b := labBench(t)
	r := testenv.RedisACL(t, []string{"user locker on >c4nary ~hf:lab:* &hf:lab:* +@all"})
	url := "redis://locker:c4nary@" + r.Addr
	b.env[0] = "PATH=" + b.dir
	out, stderr := b.want(1, "--store", url, "lab", "run", "setnx-expire", "wakeup-lost", "redlock-clock", "-o", "summary")
	for _, want := range []string{"setnx-expire", "broke (L1", "broke (L2"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in %s", want, out)
		}
	}
	if !strings.Contains(out, "needs redis-server") || !strings.Contains(stderr, "not as documented: redlock-clock") {
		t.Errorf("%s%s", out, stderr)
	}
	if reply := r.Do("DBSIZE"); reply != ":0" {
		t.Errorf("left: %s", reply)
	}
	for _, form := range []string{"json", "text"} {
		out, stderr2 := b.want(0, "--store", url, "lab", "run", "setpx-lua", "-o", form, "--html", "page.html")
		page, err := os.ReadFile(filepath.Join(b.dir, "page.html"))
		if err != nil || strings.Contains(out+stderr+stderr2+string(page), "c4nary") {
			t.Errorf("the password, or no page: %v: %s%s%s", err, out, stderr2, page)
		}
	}
	b.env = append(b.env, "HOLDFAST_URL="+url)
	b.want(69, "lab", "run", "setpx-lua")
}

// servers returns the children of process pid, from /proc.
func (b *bench) servers(pid int) (all []int) {
	b.Helper()
	tasks, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/children")
	for _, task := range tasks {
		text, _ := os.ReadFile(task)
		for _, f := range strings.Fields(string(text)) {
			if child, err := strconv.Atoi(f); err == nil {
				all = append(all, child)
			}
		}
	}
	return all
}

// However the lab ends, its servers end with it.
func TestLabServersDie(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux ends the children of a killed process")
	}
	for name, c := range map[string]struct {
		signal syscall.Signal
		code   int
	}{"interrupted": {syscall.SIGINT, 130}, "killed": {syscall.SIGKILL, -int(syscall.SIGKILL)}} {
		t.Run(name, func(t *testing.T) {
			b := labBench(t)
			p := b.start("lab", "run", "all", "--html", filepath.Join(b.dir, "lab.html"))
			var servers []int
			b.until("the servers run", func() bool {
				servers = b.servers(p.Process.Pid)
				return len(servers) >= 3
			})
			p.signal(c.signal)
			if code := p.code(); code != c.code {
				t.Errorf("exit code %d: %s", code, p.err.String())
			}
			b.until("the servers have ended", func() bool { return !slices.ContainsFunc(servers, running) })
			if _, err := os.Stat(filepath.Join(b.dir, "lab.html")); err == nil {
				t.Error("half a page was written")
			}
			if left, _ := filepath.Glob(filepath.Join(b.dir, "holdfast-lab*")); c.signal == syscall.SIGINT && len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}
