package holdfast_test

import (
	"encoding/base32"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/memlock"
)

// What the store shows of a grant is no ticket for it.
func TestShownIsNoTicket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memlock.New()
		giver, stranger := client(t, b, nil), client(t, b, nil)
		l := lock(t, giver, "x")
		ticket, _, err := lock(t, giver, "y").HandOff()
		if err != nil {
			t.Fatalf("HandOff: %v", err)
		}
		grant, next := shown(t, stranger, "x"), shown(t, stranger, "y")
		id := grant.ID
		hash, err := base32.StdEncoding.DecodeString(strings.ToUpper(id))
		if err != nil {
			t.Fatalf("ID %q: %v", id, err)
		}
		for _, secret := range [][]byte{[]byte(id)[:16], hash[:16]} {
			forged := edited(t, edited(t, ticket, "name", "x"), "secret", secret)
			forged = edited(t, forged, "token", fmt.Sprint(grant.Token))
			refused(t, holdfast.ErrGone)(stranger.Adopt(t.Context(), forged))
		}
		refused(t, holdfast.ErrInvalid)(stranger.Adopt(t.Context(), edited(t, ticket, "secret", hash)))
		if next.ID[:5] == id[:5] {
			t.Errorf("IDs can be foretold: %s, %s", id, next.ID)
		}
		if err := l.Release(); err != nil {
			t.Errorf("Release: %v", err)
		}
	})
}

// shown is what the store shows of the one who holds name.
func shown(t *testing.T, c *holdfast.Client, name string) holdfast.Holder {
	t.Helper()
	r, err := c.Inspect(t.Context(), name)
	if err != nil || len(r.Holders) != 1 {
		t.Fatalf("Inspect: %+v, %v", r, err)
	}
	return r.Holders[0]
}
