package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/sqllock"
	"github.com/holdfast-lock/holdfast/sqllock/postgres"
)

// TestSecretGone: where the row or the table of the secret is missing, locks are refused in words or work, and init mends it.
func TestSecretGone(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"DELETE FROM hf_secret", "DROP TABLE hf_secret", "UPDATE hf_secret SET secret = ''", "REVOKE SELECT ON hf_secret FROM app"} {
		t.Run(how, func(t *testing.T) {
			server := database(t)
			admin := pool(t, server.DSN("postgres"))
			run(t, admin, "CREATE ROLE app LOGIN", "GRANT ALL ON hf_meta, hf_lock, hf_done TO app", "GRANT SELECT ON hf_secret TO app")
			client := func() (*holdfast.Client, error) {
				b := sqllock.New(pool(t, server.DSN("app")), postgres.Dialect(), nil)
				t.Cleanup(func() { _ = b.Close() })
				c, err := holdfast.New(t.Context(), b, &holdfast.Config{TTL: 6 * time.Second})
				if err == nil {
					t.Cleanup(func() {
						ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
						defer cancel()
						_ = c.Close(ctx)
					})
				}
				return c, err
			}
			pass := func(what string, from, to *holdfast.Client) {
				ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
				defer cancel()
				l, err := from.Mutex("x").Lock(ctx)
				if err != nil {
					t.Logf("%s: Lock: %v", what, err)
					return
				}
				got := make(chan error, 1)
				go func() {
					l, err := to.Mutex("x").Lock(ctx)
					if err == nil {
						err = l.Release()
					}
					got <- err
				}()
				time.Sleep(300 * time.Millisecond)
				start := time.Now()
				err = l.Release()
				t.Logf("%s: Release after %v: %v", what, time.Since(start), err)
				err = <-got
				t.Logf("%s: handed over after %v: %v", what, time.Since(start), err)
			}
			a, err := client()
			b, err2 := client()
			if err != nil || err2 != nil {
				t.Fatal(err, err2)
			}
			pass("before", a, b)
			run(t, admin, how)
			pass("running clients", a, b)
			c, err := client()
			if err != nil {
				t.Logf("New: %v", err)
			} else {
				d, err := client()
				t.Logf("New: %v", err)
				pass("new clients", c, d)
			}
			initialise(t, server.DSN("postgres"))
			run(t, admin, "GRANT SELECT ON hf_secret TO app")
			c, err = client()
			d, err2 := client()
			if err != nil || err2 != nil {
				t.Fatal(err, err2)
			}
			pass("after init", c, d)
		})
	}
}
