package open

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/holdfast-lock/holdfast/sqllock"
)

// withTables are the schemes of stores whose tables somebody has to make first.
var withTables = []string{"mysql", "mariadb", "postgres", "postgresql"}

// tables is the pool of a URL's store, nil if the store makes by itself what it needs.
func tables(url string) (*sqlPool, error) {
	if url == "" { // the embedded store
		return nil, nil
	}
	scheme, _, err := cutScheme(url)
	if err != nil || !slices.Contains(withTables, scheme) {
		return nil, err
	}
	return sqlPoolOf(scheme, url, nil)
}

// Init makes the tables that the store of a URL needs, or brings those of an earlier version up to date,
// and returns the place of the store. It may be run again, and by several at once. place is empty, and
// nothing is done, if the store makes by itself what it needs.
//
// Of a quorum it declares that it is new: see quorum.Backend.Declare.
//
// Errors: driver.ErrInvalid (the URL makes no sense), driver.ErrRefused (the user may not, there is no
// such database, or the tables are of a later version), driver.ErrUnavailable, driver.ErrUncertain.
// Their text has no password in it.
func Init(ctx context.Context, url string) (place string, err error) {
	if scheme, _, ok := strings.Cut(strings.ToLower(url), ":"); ok && quorums[scheme] != "" {
		place, err = initQuorum(ctx, url)
		return place, Redact(err, url)
	}
	p, err := tables(url)
	if err != nil || p == nil {
		return "", Redact(err, url)
	}
	err = p.explain(sqllock.Init(ctx, p.db, p.dialect))
	return p.place, Redact(errors.Join(err, p.close()), url)
}

// Schema is the statements that make the tables which the store of a URL needs; none if it makes by itself
// what it needs. No server is asked. Errors: driver.ErrInvalid.
func Schema(url string) ([]string, error) {
	p, err := tables(url)
	if err != nil || p == nil {
		return nil, Redact(err, url)
	}
	return sqllock.Schema(p.dialect), p.close()
}
