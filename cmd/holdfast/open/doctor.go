package open

import (
	"context"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// Diagnose implements [driver.Diagnoser], for stores that are none, too. No text has a password of url in it,
// and what it says to change is in the terms of the command line.
func (s *Store) Diagnose(ctx context.Context, url string, ttl time.Duration) ([]driver.Finding, error) {
	d, ok := s.Backend.(driver.Diagnoser)
	if !ok {
		return []driver.Finding{{Code: s.Name() + ".settings", Severity: driver.Unclear, MayEndanger: true,
			Found: "this store cannot be examined", Why: "it may be set up in a way in which two can hold one lock", Do: "see its documentation"}}, nil
	}
	list, err := d.Diagnose(ctx, ttl)
	for i := range list {
		f := &list[i]
		for _, text := range []*string{&f.Server, &f.Found, &f.Why, &f.Do} {
			*text = Scrub(*text, url)
		}
	}
	return list, Redact(err, url)
}

// Diagnose is the Server's, in the terms of the command line.
func (s *sqlStore) Diagnose(ctx context.Context, ttl time.Duration) ([]driver.Finding, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*s.limit) // whether waiters can be woken may take three seconds alone
	defer cancel()
	list, err := s.Server.Diagnose(ctx, ttl)
	for i := range list {
		f := &list[i]
		for _, text := range []*string{&f.Found, &f.Do} {
			*text = strings.ReplaceAll(*text, "Config.Listen", listenParameter+"= in the URL")
		}
	}
	return list, s.p.explain(err)
}
