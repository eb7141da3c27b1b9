package mysql_test

import (
	"testing"

	"github.com/holdfast-lock/holdfast/sqllock/internal/sqltest"
	"github.com/holdfast-lock/holdfast/sqllock/mysql"
)

func TestDamage(t *testing.T) {
	t.Parallel()
	server := maria(t)
	sqltest.DamageStaysAlone(t, mysql.Dialect(), pool(t, server.DSN("root", "")))
	sqltest.BlocksAreDamaged(t, mysql.Dialect(), pool(t, server.DSN("root", "")))
	sqltest.EvictedIsMissing(t, mysql.Dialect(), pool(t, server.DSN("root", "")))
}

func TestCountsAnyID(t *testing.T) {
	t.Parallel()
	server := maria(t)
	sqltest.CountsAnyID(t, mysql.Dialect(), pool(t, server.DSN("root", "")))
}
