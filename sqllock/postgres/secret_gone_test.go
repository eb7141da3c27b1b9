package postgres_test

import (
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// Without the secret that seals wake-ups, waiters poll, or releases are refused with a reason. Init
// restores the secret.
func TestSecretGone(t *testing.T) {
	t.Parallel()
	server := database(t)
	admin := pool(t, server.DSN("postgres"))
	grants := []string{"GRANT ALL ON hf_meta, hf_lock, hf_done TO app", "GRANT SELECT ON hf_secret TO app"}
	run(t, admin, append([]string{"CREATE ROLE app LOGIN"}, grants...)...)
	for how, refused := range map[string]bool{
		"DELETE FROM hf_secret": false, "UPDATE hf_secret SET secret = ''": false, "DROP TABLE hf_secret": true,
		"REVOKE SELECT ON hf_secret FROM app": true,
	} {
		if !refused { // it is found when they open
			run(t, admin, how)
		}
		a, b := join(t, server.DSN("app"), time.Minute), join(t, server.DSN("app"), time.Minute)
		h, r := a.take(a.mutex("gone")), b.mutex("gone")
		wake := b.queue(r)
		if refused {
			run(t, admin, how)
		}
		err := a.Release(limited(t), h, 0)
		if refused {
			want(t, err, driver.ErrRefused, "hf_secret")
		} else if err != nil {
			t.Errorf("%s: Release: %v", how, err)
		} else {
			b.free(b.woken(r, wake))
		}
		initialise(t, server.DSN("postgres"))
		run(t, admin, grants...)
		if refused {
			a.free(h)
			b.free(b.woken(r, wake))
		}
		if n := value[int](t, admin, "SELECT length(secret) FROM hf_secret"); n != 32 {
			t.Errorf("%s: after Init the secret has %d bytes", how, n)
		}
		c, d := join(t, server.DSN("app"), time.Minute), join(t, server.DSN("app"), time.Minute)
		h, r = c.take(c.mutex("gone")), d.mutex("gone")
		wake = d.queue(r)
		c.free(h)
		d.free(d.woken(r, wake))
	}
}
