package mysql_test

import (
	"database/sql"
	"testing"

	"github.com/holdfast-lock/holdfast/internal/modeltest"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/sqllock/internal/sqltest"
	"github.com/holdfast-lock/holdfast/sqllock/mysql"
)

// TestModel compares the store with package rule.
func TestModel(t *testing.T) {
	server := testenv.MariaDB(t)
	open := func() *sql.DB { return pool(t, server.DSN("root", "")) }
	modeltest.Check(t, 1, sqltest.Model(t, open, mysql.DialectAt(sqltest.Clock)))
}

// TestModelCatches breaks statements in ways that the comparison must notice.
func TestModelCatches(t *testing.T) {
	server := testenv.MariaDB(t)
	type mutant struct{ what, old, text string }
	mutants := []mutant{
		{"a name is free though shared", "AND kind < 2 AND more = ''", "AND kind < 2"},
		{"a latch is a free name", "AND kind < 2 AND", "AND"},
		{"tokens do not grow", "LAST_INSERT_ID(GREATEST(token + 1 + ?, IF(token = 0, VALUES(token), VALUES(at)), ? + 1))",
			"LAST_INSERT_ID(token + 0 * (? + ?))"},
	}
	if testenv.Deep() { // it takes ten times as many histories as all others
		mutants = append(mutants, mutant{"a release ignores the minimum hold", "AND keep <= ", "AND 0 <= "})
	}
	for _, m := range mutants {
		t.Run(m.what, func(t *testing.T) {
			dialect, found := mysql.Edited(sqltest.Clock, m.old, m.text)
			if !found {
				t.Fatal("no statement has this text")
			}
			open := func() *sql.DB { return pool(t, server.DSN("root", "")) }
			modeltest.Catches(t, 1, 8, sqltest.Model(t, open, dialect))
		})
	}
}

func TestClockSetBack(t *testing.T) {
	server := testenv.MariaDB(t)
	sqltest.ClockSetBack(t, pool(t, server.DSN("root", "")), mysql.DialectAt(sqltest.Clock))
}
