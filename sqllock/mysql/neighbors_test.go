package mysql_test

import (
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/sqllock"
	"github.com/holdfast-lock/holdfast/sqllock/mysql"
)

// A lock of another program by GET_LOCK is found under its name, and no other name has it.
func TestNeighbors(t *testing.T) {
	t.Parallel()
	db := pool(t, maria(t).DSN("root", ""))
	b := sqllock.New(db, mysql.Dialect(), nil)
	defer func() { _ = b.Close() }()
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	const name = `deploy/'é"`
	var got int
	if err := conn.QueryRowContext(t.Context(), "SELECT GET_LOCK(?, 0)", name).Scan(&got); err != nil || got != 1 {
		t.Fatal(got, err)
	}
	list, err := b.Neighbors(t.Context(), name)
	if err != nil || len(list) != 1 || !strings.Contains(list[0], "GET_LOCK") {
		t.Errorf("%q, %v", list, err)
	}
	for _, other := range []string{"deploy", strings.Repeat("x", 65), strings.Repeat("é", 64), "a\x00b"} {
		if list, err := b.Neighbors(t.Context(), other); err != nil || len(list) != 0 {
			t.Errorf("%q: %q, %v", other, list, err)
		}
	}
}
