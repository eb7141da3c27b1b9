package open

import (
	"context"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// Diagnose is as for [driver.Diagnoser], and also works for stores that are none. No text has a
// password of url in it. Its advice is in the terms of the command line.
func (s *Store) Diagnose(ctx context.Context, url string, ttl time.Duration) ([]driver.Finding, error) {
	d, ok := s.Backend.(driver.Diagnoser)
	if !ok {
		return []driver.Finding{{Code: s.Name() + ".settings", Severity: driver.Unclear, MayEndanger: true,
			Found: "this store cannot be examined", Why: "its setup may let two clients hold one lock",
			Do: "see its documentation"}}, nil
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

// Diagnose implements [driver.Diagnoser], in the terms of the command line.
func (s *sqlStore) Diagnose(ctx context.Context, ttl time.Duration) ([]driver.Finding, error) {
	// The check of pushes alone may take three seconds.
	ctx, cancel := context.WithTimeout(ctx, 2*s.limit)
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
