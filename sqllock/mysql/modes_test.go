package mysql_test

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// operations runs, between two processes, each event that can happen to a name, mostly with the
// one-statement paths, and compares every answer.
func operations(t *testing.T, dsn string) {
	a, b := join(t, dsn, 20*time.Second), join(t, dsn, 20*time.Second)
	if why := a.b.Polling(); why != "" {
		t.Errorf("waiters poll: %s", why)
	}
	name := func(s string) string { return a.id + "/" + s }

	// A fresh name, a held one, the same request again, a released one.
	r := a.req(name("x"))
	first := a.get(r)
	if again := a.get(r); again.Token != first.Token {
		t.Errorf("the same request again: token %d; want %d", again.Token, first.Token)
	}
	b.refused(once(b.req(name("x"))))
	holds(t, a, name("x"), r, first)
	a.release(first)
	r = b.req(name("x"))
	second := b.get(r)
	if second.Token <= first.Token {
		t.Errorf("token %d after %d", second.Token, first.Token)
	}
	holds(t, a, name("x"), r, second)

	// A queue of four, of which the last, one in the middle and the first leave.
	var line []*driver.Request
	var replies []driver.Reply
	for i := range 5 {
		line = append(line, a.req(name("x")))
		rep := a.refused(line[i])
		if rep.Ahead != i || rep.Retry <= 0 || rep.Retry > 21*time.Second {
			t.Errorf("place %d: %d ahead, retry in %v", i, rep.Ahead, rep.Retry)
		}
		replies = append(replies, rep)
	}
	if rep := a.refused(line[2]); rep.Ahead != 2 {
		t.Errorf("the same place again: %d ahead; want 2", rep.Ahead)
	} else {
		replies[2] = rep
	}
	stands(t, b, name("x"), line...)
	for _, leaving := range []int{4, 1, 0} {
		if err := a.Cancel(a.ctx, name("x"), line[leaving].ID); err != nil {
			t.Fatalf("Cancel: %v", err)
		}
		line = append(line[:leaving:leaving], line[leaving+1:]...)
		replies = append(replies[:leaving:leaving], replies[leaving+1:]...)
		stands(t, b, name("x"), line...)
	}
	if ch := b.renew(second); ch.State != 0 {
		t.Errorf("Renew = %+v", ch)
	}
	// Hand-over to another process, and within one.
	b.release(second)
	third := a.served(line[0], replies[0])
	holds(t, b, name("x"), line[0], third)
	a.release(third)
	fourth := a.served(line[1], replies[1])
	holds(t, b, name("x"), line[1], fourth)
	if fourth.Token <= third.Token || third.Token <= second.Token {
		t.Errorf("tokens %d, %d, %d", second.Token, third.Token, fourth.Token)
	}
	if err := b.b.Break(b.ctx, name("x"), fourth.Token); err != nil {
		t.Errorf("Break: %v", err)
	}
	if ch := a.renew(fourth); ch.State != driver.Gone {
		t.Errorf("Renew of a broken grant = %+v", ch)
	}

	// A minimum hold.
	r = once(a.req(name("min")))
	r.MinHold = time.Hour
	kept := a.get(r)
	a.release(kept)
	b.refused(once(b.req(name("min"))))
	if rec := b.inspect(name("min")); len(rec.Holders) != 1 || !rec.Holders[0].Kept {
		t.Errorf("a minimum hold: %+v", rec)
	}

	// A lease that expires.
	short := join(t, dsn, driver.MinTTL)
	r = short.req(name("short"))
	r.Wait = false
	lapsed := short.get(r)
	r = b.req(name("short"))
	next := b.served(r, b.ask(r))
	if next.Token <= lapsed.Token {
		t.Errorf("token %d after %d, which expired", next.Token, lapsed.Token)
	}
	if err := short.Release(short.ctx, lapsed, 0); err == nil {
		t.Error("Release of an expired lease")
	}
	others(t, a, b, name)
}

// others are shared grants, permits and latches, for which Server reads the row.
func others(t *testing.T, a, b *client, name func(string) string) {
	reader := a.get(a.shared(name("rw")))
	b.release(b.get(b.shared(name("rw"))))
	writer := b.req(name("rw"))
	rep := b.refused(writer)
	a.release(reader)
	b.release(b.served(writer, rep))
	two := a.get(a.permits(name("sem"), 2, 3))
	wants := b.permits(name("sem"), 2, 3)
	rep = b.refused(wants)
	a.release(two)
	b.release(b.served(wants, rep))
	if err := testenv.Repeated(func() error { _, err := a.SetCount(a.ctx, name("latch"), 1); return err }); err != nil {
		t.Fatalf("SetCount: %v", err)
	}
	var left int64
	rep, err := b.Await(b.ctx, name("latch"), b.id+"-w")
	if err != nil || rep.Token != 0 {
		t.Fatalf("Await = %+v, %v", rep, err)
	}
	if err := testenv.Repeated(func() (err error) {
		left, err = a.CountDown(a.ctx, name("latch"), "one")
		return err
	}); err != nil || left != 0 {
		t.Errorf("CountDown = %d, %v", left, err)
	}
	select {
	case <-rep.Wake:
	case <-time.After(patient):
		t.Error("a waiter of the latch was not woken")
	}
}

// holds checks that r is the only holder of name.
func holds(t *testing.T, c *client, name string, r *driver.Request, h driver.Hold) {
	t.Helper()
	rec := c.inspect(name)
	if len(rec.Holders) != 1 {
		t.Errorf("holders %+v; want one", rec.Holders)
		return
	}
	if got := rec.Holders[0]; got.ID != r.ID || got.Token != h.Token || got.Info != r.Info || got.Left <= 0 ||
		got.Left > 21*time.Second || got.Kept {
		t.Errorf("holder %+v; want %s with token %d and info %q", got, r.ID, h.Token, r.Info)
	}
}

// stands checks the queue and its order.
func stands(t *testing.T, c *client, name string, line ...*driver.Request) {
	t.Helper()
	rec := c.inspect(name)
	var got, want []string
	for _, w := range rec.Waiters {
		got = append(got, w.ID+" "+w.Info)
	}
	for _, r := range line {
		want = append(want, r.ID+" "+r.Info)
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") || rec.Waiting != len(want) {
		t.Errorf("in the queue (%d):\n%s\nwant:\n%s", rec.Waiting, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// The results do not depend on the pool's parameters.
func TestParameters(t *testing.T) {
	t.Parallel()
	server := maria(t)
	for name, params := range map[string]string{
		"none":               "",
		"no mode":            "sql_mode=''",
		"strict":             "sql_mode='STRICT_ALL_TABLES,STRICT_TRANS_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE,ERROR_FOR_DIVISION_BY_ZERO'",
		"simultaneous":       "sql_mode='SIMULTANEOUS_ASSIGNMENT,STRICT_TRANS_TABLES'",
		"no backslashes":     "sql_mode='NO_BACKSLASH_ESCAPES'",
		"ANSI":               "sql_mode='ANSI'",
		"traditional":        "sql_mode='TRADITIONAL'",
		"Oracle":             "sql_mode='ORACLE'",
		"SQL Server":         "sql_mode='MSSQL'",
		"unusual":            "sql_mode='HIGH_NOT_PRECEDENCE,PAD_CHAR_TO_FULL_LENGTH,NO_UNSIGNED_SUBTRACTION,IGNORE_SPACE,TIME_ROUND_FRACTIONAL'",
		"found rows":         "clientFoundRows=true",
		"changed rows":       "clientFoundRows=false",
		"interpolated":       "interpolateParams=true",
		"several statements": "multiStatements=true&parseTime=true&loc=America%2FNew_York",
		"compressed":         "compress=true",
		"read committed":     "tx_isolation='READ-COMMITTED'",
		"repeatable read":    "tx_isolation='REPEATABLE-READ'",
		"serializable":       "tx_isolation='SERIALIZABLE'",
		"utf8mb4":            "charset=utf8mb4&collation=utf8mb4_unicode_ci",
		"latin1":             "charset=latin1",
		"binary":             "charset=binary",
		"sjis":               "charset=sjis",
		"gbk":                "charset=gbk&sql_mode='NO_BACKSLASH_ESCAPES'",
		"two character sets": "charset=utf8mb4&character_set_connection='latin1'",
		"another time zone":  "time_zone='-11:30'",
		"safe updates":       "sql_safe_updates=1",
		"no literals alive":  "checkConnLiveness=false&maxAllowedPacket=0",
		"statement limit":    "max_statement_time=0.9",
		"together":           "clientFoundRows=true&interpolateParams=true&charset=latin1&tx_isolation='SERIALIZABLE'&sql_mode='SIMULTANEOUS_ASSIGNMENT,ANSI,NO_BACKSLASH_ESCAPES'",
	} {
		t.Run(name, func(t *testing.T) { operations(t, server.DSN("root", "")+"?"+dsnParams(params)) })
	}
}

// dsnParams escapes the values for SET.
func dsnParams(params string) string {
	return strings.NewReplacer("'", "%27", ",", "%2C").Replace(params)
}
