package lab_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/lab"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/redislock"
	"github.com/holdfast-lock/holdfast/redislock/rueidisconn"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// needsServer skips a test under -short, and fails it if there is no redis-server.
func needsServer(t *testing.T) context.Context {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: this test starts servers")
	}
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Fatalf("%v; this test needs redis-server (Debian, Ubuntu: apt-get install redis-server)", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// run runs rows and fails the test for each without the documented result.
func run(t *testing.T, ctx context.Context, url string, rows []lab.Row) (all []*lab.Outcome) {
	t.Helper()
	l, err := lab.New(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	err = l.Run(ctx, rows, func(o *lab.Outcome) error {
		all = append(all, o)
		if !o.OK() {
			t.Errorf("%s\n%s", o.Line(), o.Text(0))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Every algorithm breaks as documented and holdfast survives, in one run.
func TestRows(t *testing.T) {
	ctx := needsServer(t)
	all := run(t, ctx, "", lab.Rows())
	if len(all) != len(lab.Rows()) {
		t.Fatalf("%d outcomes of %d rows", len(all), len(lab.Rows()))
	}
	for i, o := range all {
		if o.Row.ID != lab.Rows()[i].ID {
			t.Errorf("outcome %d is %s, not %s", i, o.Row.ID, lab.Rows()[i].ID)
		}
		text := o.Text(0)
		switch {
		case o.Row.Class == "S1" || o.Row.Class == "S2" || o.Row.Class == "S5":
			algorithm, _, _ := strings.Cut(text, "the same with holdfast")
			if !strings.Contains(algorithm, "believe that they hold the lock") {
				t.Errorf("%s: the timeline does not show when too many clients believed that they hold the lock:\n%s", o.Row.ID,
					text)
			}
		case o.Row.Class == lab.Cost:
			if o.Unsound.Rate == nil || o.Unsound.Rate.Requests == 0 || o.Sound.Rate == nil {
				t.Errorf("%s: there is no measurement:\n%s", o.Row.ID, text)
			}
		}
	}
	checkPage(t, all)
	checkPictures(t, all)
}

// checkPictures checks the picture of each row. The one in docs shows what the lab has just seen.
func checkPictures(t *testing.T, all []*lab.Outcome) {
	t.Helper()
	for _, o := range all {
		svg := lab.CheckPicture(t, o)
		if o.Row.ID != "setpx-del" {
			continue
		}
		docs, err := os.ReadFile("../../../docs/img/setpx-del.svg")
		if err != nil {
			t.Fatal(err)
		}
		if got, want := lab.Structure(t, docs), lab.Structure(t, svg); got != want {
			t.Errorf("docs/img/setpx-del.svg is not what the lab draws (docs/lab.md names the command):\n%s\nwant:\n%s", got,
				want)
		}
	}
}

// On a user's server nothing remains, and other keys are untouched.
func TestGuest(t *testing.T) {
	ctx := needsServer(t)
	s, err := lab.Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	conn, err := rueidisconn.Dial(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	ask := func(words ...string) redislock.Value {
		t.Helper()
		a := redislock.Ask(ctx, conn.(redislock.Asker), words...)[0]
		if a.Err != nil {
			t.Fatalf("%v: %v", words, a.Err)
		}
		return a.Value
	}
	ask("SET", "R", "the user's")
	var rows []lab.Row
	for _, r := range lab.Rows() {
		if r.Store == lab.Redis && r.Servers == 0 {
			rows = append(rows, r)
		}
	}
	if len(rows) < 15 {
		t.Fatalf("only %d rows run on one server", len(rows))
	}
	run(t, ctx, s.URL(), rows)
	if n := ask("DBSIZE").Int; n != 1 || ask("GET", "R").Text != "the user's" {
		t.Errorf("%d keys remain: %+v", n, ask("KEYS", "*"))
	}
}

// An interrupted run ends soon, and nothing remains either.
func TestInterrupted(t *testing.T) {
	ctx := needsServer(t)
	s, err := lab.Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	l, err := lab.New(ctx, s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	enough := errors.New("enough")
	var rows []lab.Row
	// The first is fast.
	for _, id := range []string{"setnx-getset-clock", "setpx-lua", "setnx-expire"} {
		rows = append(rows, lab.Rows()[slices.IndexFunc(lab.Rows(), func(r lab.Row) bool { return r.ID == id })])
	}
	err = l.Run(ctx, rows, func(*lab.Outcome) error {
		cancel(enough)
		return nil
	})
	if !errors.Is(err, enough) {
		t.Errorf("Run returned %v", err)
	}
	conn, err := rueidisconn.Dial(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	a := redislock.Ask(context.Background(), conn.(redislock.Asker), "KEYS", "*")[0]
	if a.Err != nil || len(a.Value.List) != 0 {
		t.Errorf("remaining: %+v", a)
	}
}

// The texts of a row are complete, and the documentation has a line for each.
func TestRowsAreDescribed(t *testing.T) {
	docs, err := os.ReadFile("../../../docs/lab.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, r := range lab.Rows() {
		if r.ID == "" || r.Title == "" || r.Acquire == "" || r.Release == "" || r.Habit == "" || r.Why == "" || r.How == "" ||
			r.Class == "" {
			t.Errorf("%s lacks a field: %+v", r.ID, r)
		}
		if seen[r.ID] {
			t.Errorf("%s appears twice", r.ID)
		}
		seen[r.ID] = true
		if !strings.Contains(string(docs), "`"+r.ID+"`") {
			t.Errorf("docs/lab.md does not mention %s", r.ID)
		}
	}
	if len(seen) < 18 {
		t.Errorf("only %d rows", len(seen))
	}
}

func TestNewRefuses(t *testing.T) {
	for url, want := range map[string]error{
		"redis+cluster://127.0.0.1:1":      driver.ErrInvalid,
		"redis+sentinel://127.0.0.1:1/m":   driver.ErrInvalid,
		"postgres://127.0.0.1:1/locks":     driver.ErrInvalid,
		"sqlite:/tmp/locks.db":             driver.ErrInvalid,
		"redis://127.0.0.1:99999":          driver.ErrInvalid,
		"redis://user:s3cret@127.0.0.1:1":  driver.ErrUnavailable,
		"redis+unix:///nowhere/redis.sock": driver.ErrUnavailable,
	} {
		if l, err := lab.New(context.Background(), url); !errors.Is(err, want) || l != nil {
			t.Errorf("%s: %v, want %v", url, err, want)
		}
	}
}

// Rows whose server is missing, or that are not for the user's server, are left out with a reason.
func TestRunnable(t *testing.T) {
	s, err := lab.Start(needsServer(t))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	t.Setenv("PATH", t.TempDir()) // programs of PostgreSQL are found elsewhere, too
	for url, want := range map[string]map[lab.Store]string{
		"": {lab.Redis: "apt-get install redis-server", lab.MySQL: "apt-get install mariadb-server",
			lab.ZooKeeper: "libzookeeper-java"},
		s.URL(): {lab.MySQL: "without --store", lab.Postgres: "without --store", lab.SQLite: "without --store",
			lab.ZooKeeper: "without --store"},
	} {
		l, err := lab.New(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		can, left := l.Runnable(lab.Rows())
		n := len(can)
		for _, o := range left {
			n += len(o.Rows)
			if text := want[o.Store]; text == "" && o.Store != lab.Postgres ||
				!errors.Is(o.Err, driver.ErrUnavailable) || !strings.Contains(o.Err.Error(), text) {
				t.Errorf("%+v; want %q", o, text)
			}
			delete(want, o.Store)
		}
		if n != len(lab.Rows()) || len(want) != 0 {
			t.Errorf("%d rows of %d; not left out: %v", n, len(lab.Rows()), want)
		}
	}
}
