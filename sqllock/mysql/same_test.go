package mysql_test

import (
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/sqllock/mysql"
)

// A request ID that is used again after its release is not granted again: the name stays kept.
func TestSameIDAfterItsEnd(t *testing.T) {
	t.Parallel()
	server := maria(t)
	db := pool(t, server.DSN("root", ""))
	a := joinOn(t, db, mysql.Dialect(), time.Minute)
	r := a.req("kept")
	h := a.get(r)
	if err := a.Release(a.ctx, h, time.Hour); err != nil {
		t.Fatal(err)
	}
	if rep := a.ask(r); rep.Token != 0 {
		t.Errorf("Acquire of a name that is kept for an hour = %+v", rep)
	}
}
