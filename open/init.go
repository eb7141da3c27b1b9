package open

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/holdfast-lock/holdfast/sqllock"
)

// withTables are the schemes of stores that need tables.
var withTables = []string{"mysql", "mariadb", "postgres", "postgresql"}

// tables returns the pool of the store of a URL, nil if the store needs no tables.
func tables(url string) (*sqlPool, error) {
	if url == "" { // the embedded store
		return nil, nil
	}
	scheme, _, err := cutScheme(asRedis(url))
	if err != nil || !slices.Contains(withTables, scheme) {
		return nil, err
	}
	return sqlPoolOf(scheme, url, nil)
}

// Init creates the tables that the store of a URL needs, or updates those of an earlier version,
// and returns the place of the store. It may be called again, and by several processes at once. If
// the store needs no tables, Init does nothing, and place is empty.
//
// For a quorum, Init declares that the quorum is new: see quorum.Backend.Declare.
//
// Errors: driver.ErrInvalid (the URL is invalid), driver.ErrRefused (the user lacks rights, there
// is no such database, or the tables are of a later version), driver.ErrUnavailable,
// driver.ErrUncertain. No error text has a password in it.
func Init(ctx context.Context, url string) (place string, err error) {
	if scheme, _, ok := strings.Cut(strings.ToLower(asRedis(url)), ":"); ok && quorums[scheme] != "" {
		place, err = initQuorum(ctx, asRedis(url))
		return place, Redact(err, url)
	}
	p, err := tables(url)
	if err != nil || p == nil {
		return "", Redact(err, url)
	}
	err = p.explain(sqllock.Init(ctx, p.db, p.dialect))
	return p.place, Redact(errors.Join(err, p.close()), url)
}

// Schema returns the statements that create the tables of the store of a URL, or nil if it needs
// none. It asks no server. Errors: driver.ErrInvalid.
func Schema(url string) ([]string, error) {
	p, err := tables(url)
	if err != nil || p == nil {
		return nil, Redact(err, url)
	}
	return sqllock.Schema(p.dialect), p.close()
}
