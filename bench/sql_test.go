package main

import (
	"context"
	"errors"
	"math"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/servers"
	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// sqlBed is a testbed with a server of that kind.
func sqlTestbed(t *testing.T, k *sqlKind) *testbed {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: this test starts a database server")
	}
	if err := k.missing(); err != nil {
		t.Skip(err)
	}
	b := &testbed{dir: t.TempDir(), duration: duration()}
	if err := b.prepare(t.Context(), scenario{sql: k}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.noSQL)
	return b
}

// TestSQL runs the smallest of each kind of scenario. Those of many clients run only at full size.
func TestSQL(t *testing.T) {
	for _, k := range sqlKinds {
		t.Run(k.store, func(t *testing.T) {
			b := sqlTestbed(t, k)
			if b.sql.release == "" {
				t.Error("a server without a version")
			}
			for _, sc := range sqlScenarios(k) {
				if slices.Contains([]string{"16", "32", "100", "128", "1000"},
					strings.TrimSuffix(sc.name[strings.LastIndexByte(sc.name, '/')+1:], "-work")) {
					continue
				}
				if !testenv.Deep() && (strings.Contains(sc.name, "/beside/") || strings.Contains(sc.name, "/line/") ||
					strings.HasSuffix(sc.name, "one/2")) {
					continue
				}
				b.fair = sc.fair
				for _, s := range sc.subjects {
					t.Run(sc.name+"/"+s.name, func(t *testing.T) {
						m, err := measured(b, func() (metrics, error) { return s.run(t.Context(), b) })
						if err != nil {
							t.Fatal(err)
						}
						sensible(t, sc, s, m)
					})
				}
			}
		})
	}
}

// sensible checks the known bounds of the figures.
func sensible(t *testing.T, sc scenario, s subject, m metrics) {
	t.Helper()
	for _, c := range sc.columns {
		mayBeZero := few(m) || slices.Contains([]string{"violations", "self", "overtaken"}, c.key)
		if v, ok := m[c.key]; !ok || math.IsNaN(v) || v < 0 || v == 0 && !mayBeZero {
			t.Errorf("%s: %v", c.head, v)
		}
	}
	if m["violations"] != 0 || m["p99"] < m["p50"] {
		t.Errorf("%v", m)
	}
	if strings.HasSuffix(sc.name, "/floor") {
		return
	}
	// The counts of a pair are exact, except for a ping. The server counts the statements of contenders
	// during the load, and is asked whenever this machine gets to it: they only show a count.
	pair := strings.HasSuffix(sc.name, "/pair")
	exact := !pair || s.name == "pglock" || about(m, "sent", 2) && about(m, "calls", 2)
	// Goroutines of one client pass the lock among themselves.
	passed := strings.Contains(sc.name, "/goroutines/") && strings.HasPrefix(s.name, "holdfast-")
	if !exact || !passed && (pair || !few(m)) && (m["sent"] < 1 || m["calls"] < 0.5) {
		t.Errorf("%v commands, %v statements", m["sent"], m["calls"])
	}
	if strings.HasPrefix(s.name, "holdfast-") && m["overtaken"] != 0 {
		t.Errorf("%v were overtaken", m["overtaken"])
	}
}

// TestSQLCounts: the server counts exactly the client's statements, without the query for the
// count. The wire counts these and their preparations.
func TestSQLCounts(t *testing.T) {
	for _, k := range sqlKinds {
		t.Run(k.store, func(t *testing.T) {
			b := sqlTestbed(t, k)
			if err := b.sql.clear(t.Context()); err != nil {
				t.Fatal(err)
			}
			w := new(wire)
			c, err := sqlLibraries(k)[0].open(t.Context(), b.site(0, w))
			if err != nil {
				t.Fatal(err)
			}
			contender := c.contender("counted")
			var reads [3]load
			for i := range reads {
				if reads[i], err = b.sql.load(t.Context()); err != nil {
					t.Fatal(err)
				}
				if i > 0 {
					continue
				}
				for range 50 {
					if err := contender.lock(t.Context()); err != nil {
						t.Fatal(err)
					}
					if err := contender.unlock(); err != nil {
						t.Fatal(err)
					}
				}
			}
			sent, open := w.commands.Load(), w.open.Load()
			if n := reads[1].commands - reads[0].commands; n < 100 || n > 102 || reads[1].cpu <= reads[0].cpu {
				t.Errorf("50 pairs: %d statements, CPU %v", n, reads[1].cpu-reads[0].cpu)
			}
			if n := reads[2].commands - reads[1].commands; n != 0 {
				t.Errorf("between two readings: %d statements", n)
			}
			if sent < 100 || sent > 106 || open != 1 {
				t.Errorf("50 pairs: %d commands on %d connections", sent, open)
			}
			if err := c.close(); err != nil || w.open.Load() != 0 {
				t.Errorf("closed: %v; %d connections are open", err, w.open.Load())
			}
		})
	}
}

// TestSQLIsolated: a measurement begins with empty tables, and only after the clients of the
// previous one have left.
func TestSQLIsolated(t *testing.T) {
	for _, k := range sqlKinds {
		t.Run(k.store, func(t *testing.T) {
			b := sqlTestbed(t, k)
			if err := b.sql.clear(t.Context()); err != nil {
				t.Fatal(err)
			}
			db := k.pool(b.sql.addr, new(wire), true)
			defer db.Close()
			if _, err := db.Exec("INSERT INTO " + naiveTable + " VALUES ('left', 'over', NULL)"); err == nil {
				t.Fatal("a lease without an end was taken") // the statement is useless then
			}
			if _, err := db.Exec("INSERT INTO " + naiveTable + " VALUES ('left', 'over', '2000-01-01')"); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			if err := b.sql.clear(ctx); err == nil {
				t.Error("tables were recreated while a client was connected")
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			if err := b.sql.clear(t.Context()); err != nil {
				t.Fatal(err)
			}
			var n int
			if err := b.sql.admin.QueryRow("SELECT COUNT(*) FROM " + naiveTable).Scan(&n); err != nil || n != 0 {
				t.Errorf("%d rows remain, %v", n, err)
			}
		})
	}
}

// TestSQLStopped: a measurement without its server fails.
func TestSQLStopped(t *testing.T) {
	for _, k := range sqlKinds {
		t.Run(k.store, func(t *testing.T) {
			b := sqlTestbed(t, k)
			b.sql.stop()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			if _, err := b.read(ctx, new(wire)); err == nil {
				t.Error("figures of a stopped server")
			}
			for _, l := range sqlLibraries(k) {
				if m, err := runPair(ctx, b, l); err == nil {
					t.Errorf("%s: %v from a stopped server", l.name, m)
				}
			}
		})
	}
}

// TestFamilyCPU: a child's CPU time counts while it lives and after its end.
func TestFamilyCPU(t *testing.T) {
	if _, err := familyCPU(os.Getpid()); err != nil {
		t.Skip(err)
	}
	read := func(f func(int) (time.Duration, error)) time.Duration {
		used, err := f(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		return used
	}
	// Between two readings this process uses the CPU, too. So others is at least the CPU time of all
	// other processes, and before is at most that.
	others := func() time.Duration {
		self := read(processCPU)
		return read(familyCPU) - self
	}
	before := read(familyCPU) - read(processCPU)
	child := exec.Command("sh", "-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo done; read x")
	servers.Bind(child)
	in, ierr := child.StdinPipe()
	out, oerr := child.StdoutPipe()
	if err := errors.Join(ierr, oerr, child.Start()); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	its, err := processCPU(child.Process.Pid)
	if err != nil || its < 50*time.Millisecond {
		t.Fatalf("200,000 steps of a shell are %v, %v", its, err)
	}
	if used := others() - before; used < its-time.Millisecond {
		t.Errorf("%v, with a child that has used %v", used, its)
	}
	if err := errors.Join(in.Close(), child.Wait()); err == nil {
		t.Fatal("the shell read a line without input")
	}
	if used := others() - before; used < its-20*time.Millisecond { // it is known in ticks now
		t.Errorf("%v, after a child that had used %v", used, its)
	}
	if _, err := familyCPU(1 << 22); err == nil {
		t.Error("CPU of a missing process")
	}
}

func TestSQLMissing(t *testing.T) {
	all := regexp.MustCompile("")
	for _, k := range sqlKinds {
		s := settings{scenarios: all, libraries: all, store: k.store}
		if k.missing() == nil {
			chosen, err := s.choose(t.Context(), &testbed{}, &report{})
			if err != nil || len(chosen) < 10 || slices.ContainsFunc(chosen,
				func(sc scenario) bool { return sc.sql != k && sc.store != "any" }) {
				t.Errorf("%s: %v, %v", k.store, chosen, err)
			}
		}
		programs := k.programs
		k.programs = []string{"no-such-program"}
		_, err := s.choose(t.Context(), &testbed{}, &report{})
		if err == nil || !strings.Contains(err.Error(), k.needs) {
			t.Errorf("%s is missing, and was chosen: %v", k.what, err)
		}
		s.store, s.libraries = "all", regexp.MustCompile("^no-such$")
		chosen, err := s.choose(t.Context(), &testbed{}, &report{})
		if err != nil || len(chosen) == 0 || slices.ContainsFunc(chosen, func(sc scenario) bool { return sc.sql == k }) {
			t.Errorf("%s is missing: %v, %v", k.what, chosen, err)
		}
		k.programs = programs
	}
}

func TestSQLParsersCountCommandsHoweverTheyAreCut(t *testing.T) {
	packet := func(number byte, payload string) string {
		return string([]byte{byte(len(payload)), byte(len(payload) >> 8), byte(len(payload) >> 16), number}) + payload
	}
	message := func(kind, payload string) string {
		n := len(payload) + 4
		return kind + string([]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}) + payload
	}
	// Looks like packets and messages.
	long := strings.Repeat("\x00\x00\x01\x00Q\x00\x00\x00\x04", 60)
	for name, c := range map[string]struct {
		stream string
		make   func() counter
	}{
		"mysql": {
			packet(1, "who I am") + packet(3, "") + packet(0, "\x03SELECT 1") + packet(0, "\x03"+long) + packet(0, "\x01"),
			func() counter { return new(mysqlParser) },
		},
		"postgres": {
			message("", "\x00\x03\x00\x00user\x00Q\x00") + message("p", "secret") + message("Q", long) + message("P", "S") +
				message("B", long) +
				message("D", "") + message("E", "") + message("S", "") + message("Q", "") + message("X", ""),
			func() counter { return new(postgresParser) },
		},
	} {
		for size := 1; size <= len(c.stream); size++ {
			p, n := c.make(), 0
			for chunk := range slices.Chunk([]byte(c.stream), size) {
				n += p.feed(chunk)
			}
			if n != 3 {
				t.Errorf("%s, in pieces of %d bytes: %d commands, want 3", name, size, n)
			}
		}
	}
}

// knowing is a contender that has been in the queue since a time, or did not have to wait.
type knowing struct {
	openDoor
	since time.Duration
}

func (k knowing) placed() time.Duration { return k.since }

func TestContestDetectsOvertaking(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		k     contender
		asked time.Duration
		want  int64
	}{
		"was in the queue before":             {knowing{since: 9 * ms}, 8 * ms, 1},
		"was not in the queue yet":            {knowing{since: 11 * ms}, 8 * ms, 0},
		"did not have to wait":                {knowing{}, 8 * ms, 0},
		"unknown, and asked long before":      {openDoor{}, 10*ms - grace - 1, 1},
		"unknown, and asked a little earlier": {openDoor{}, 10*ms - grace, 0},
		"asked later":                         {openDoor{}, 12 * ms, 0},
	} {
		r := newContest(2)
		r.counting.Store(true)
		r.order(openDoor{}, 10*ms)
		r.order(c.k, c.asked)
		if got := r.overtaken.Load(); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}
