package torture

import (
	"database/sql"
	"net"
	"slices"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/open"
)

// occupy takes up to n connections of a server, and returns a function that closes them.
func occupy(addr string, n int) (end func()) {
	var all []net.Conn
	for range n {
		c, err := net.DialTimeout("tcp", addr, time.Second)
		if err != nil {
			break
		}
		all = append(all, c)
	}
	return func() {
		for _, c := range all {
			_ = c.Close()
		}
	}
}

func initialise(t *testing.T, url string) {
	t.Helper()
	if _, err := open.Init(t.Context(), url); err != nil {
		t.Fatal(err)
	}
}

// inQuorum reports whether a server of a quorum is out of quarantine.
func inQuorum(t *testing.T, url, server string) bool {
	s, err := open.Open(t.Context(), url)
	if err != nil {
		t.Error(err)
		return true
	}
	defer func() { _ = s.Close() }()
	list, err := s.Diagnose(t.Context(), url, tortureTTL)
	return err == nil && slices.ContainsFunc(list, func(f driver.Finding) bool {
		return f.Server == server && f.Code == "quorum.quarantine" && f.Severity == driver.Fine
	})
}

// query returns a number from a PostgreSQL that may be recovering.
func query(t *testing.T, url, question string) (n int) {
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Error(err)
		return 0
	}
	defer func() { _ = db.Close() }()
	until(t, question, func() bool {
		var answer sql.NullInt64
		err := db.QueryRowContext(t.Context(), question).Scan(&answer)
		n = int(answer.Int64)
		return err == nil
	})
	return n
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	// After its machine has stopped for two seconds, a sentinel does nothing for thirty.
	const limit = 90 * time.Second
	for end := time.Now().Add(limit); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Errorf("not in %v: %s", limit, what)
			return
		}
	}
}
