package mysql_test

import (
	"testing"
	"time"
)

// preparedNow counts the server's prepared statements.
const preparedNow = "SELECT CAST(variable_value AS SIGNED) FROM information_schema.global_status WHERE variable_name = 'PREPARED_STMT_COUNT'"

// A name is the same with and without prepared statements, whatever the character sets of the
// connection.
func TestPreparedNames(t *testing.T) {
	t.Parallel()
	server := maria(t)
	plain := join(t, server.DSN("root", ""), time.Minute)
	run(t, plain.db, "SET GLOBAL max_prepared_stmt_count = 0")
	plain.release(plain.get(plain.req("warm")))
	run(t, plain.db, "SET GLOBAL max_prepared_stmt_count = 1000")
	for what, params := range map[string]string{
		"usual":          "",
		"two sets":       "?charset=utf8mb4&character_set_connection=%27latin1%27",
		"another client": "?charset=utf8mb4&character_set_client=%27latin1%27",
		"binary":         "?charset=binary",
	} {
		prepares := join(t, server.DSN("root", "")+params, time.Minute)
		for _, name := range []string{"ü", "\u20ac/%ff", "\\'\"`?{now}", "日本"} {
			for range 3 { // free, held, released
				h := prepares.get(prepares.req(name))
				plain.refused(once(plain.req(name)))
				prepares.release(h)
				h = plain.get(plain.req(name))
				r := prepares.req(name)
				rep := prepares.refused(r)
				plain.release(h)
				prepares.release(prepares.served(r, rep))
			}
		}
		if n := value[int](t, plain.db, preparedNow); n == 0 {
			t.Errorf("%s: nothing was prepared", what)
		}
		prepares.close()
		eventually(t, what+": no statement is left after Close",
			func() bool { return value[int](t, plain.db, preparedNow) == 0 })
	}
}

// When the server cannot prepare more statements, they run unprepared, also if that happens later.
func TestPreparedTooMany(t *testing.T) {
	t.Parallel()
	server := maria(t)
	for what, limit := range map[string]string{"from the beginning": "0", "on a second connection": "1000"} {
		t.Run(what, func(t *testing.T) {
			a := join(t, server.DSN("root", ""), time.Minute)
			run(t, a.db, "SET GLOBAL max_prepared_stmt_count = "+limit)
			for range 3 {
				a.release(a.get(a.req("x")))
			}
			if n := value[int](t, a.db, preparedNow); (n > 0) != (limit != "0") {
				t.Fatalf("%d statements are prepared", n)
			}
			run(t, a.db, "SET GLOBAL max_prepared_stmt_count = 0")
			a.db.SetMaxIdleConns(0) // connections with prepared statements are closed
			a.db.SetMaxIdleConns(2)
			for range 3 {
				h := a.get(a.req("x"))
				r := a.req("x")
				rep := a.refused(r)
				a.release(h)
				a.release(a.served(r, rep))
			}
			// The server may close the connections later.
			eventually(t, "no statement is prepared", func() bool { return value[int](t, a.db, preparedNow) == 0 })
		})
	}
}
