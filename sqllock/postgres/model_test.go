package postgres_test

import (
	"database/sql"
	"testing"

	"github.com/holdfast-lock/holdfast/internal/modeltest"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/sqllock/internal/sqltest"
	"github.com/holdfast-lock/holdfast/sqllock/postgres"
)

// TestModel compares the store with package rule.
func TestModel(t *testing.T) {
	server := testenv.Postgres(t)
	open := func() *sql.DB { return pool(t, server.DSN("postgres")) }
	modeltest.Check(t, 1, sqltest.Model(t, open, postgres.DialectAt(sqltest.Clock)))
}

// TestModelCatches breaks statements in ways that the comparison must notice.
func TestModelCatches(t *testing.T) {
	server := testenv.Postgres(t)
	type mutant struct{ what, old, text string }
	mutants := []mutant{
		{"a name is free though shared", "AND l.kind < 2 AND l.more = ''", "AND l.kind < 2"},
		{"a latch is a free name", "AND l.kind < 2 AND", "AND"},
		{"tokens do not grow", "ELSE greatest(l.token + $8::bigint, excluded.at,", "ELSE greatest(l.token,"},
	}
	if testenv.Deep() { // it takes ten times as many histories as all others
		mutants = append(mutants, mutant{"a release ignores the minimum hold", "AND l.keep <= c.us", ""})
	}
	for _, m := range mutants {
		t.Run(m.what, func(t *testing.T) {
			dialect, found := postgres.Edited(sqltest.Clock, m.old, m.text)
			if !found {
				t.Fatal("no statement has this text")
			}
			open := func() *sql.DB { return pool(t, server.DSN("postgres")) }
			modeltest.Catches(t, 1, 8, sqltest.Model(t, open, dialect))
		})
	}
}

func TestClockSetBack(t *testing.T) {
	server := testenv.Postgres(t)
	sqltest.ClockSetBack(t, pool(t, server.DSN("postgres")), postgres.DialectAt(sqltest.Clock))
}
