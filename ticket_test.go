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

// The ID that the store shows for a grant is no ticket for it.
func TestShownIDIsNoTicket(t *testing.T) {
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
			t.Errorf("IDs can be guessed: %s, %s", id, next.ID)
		}
		if err := l.Release(); err != nil {
			t.Errorf("Release: %v", err)
		}
	})
}

// shown returns what the store shows about the holder of name.
func shown(t *testing.T, c *holdfast.Client, name string) holdfast.Holder {
	t.Helper()
	r, err := c.Inspect(t.Context(), name)
	if err != nil || len(r.Holders) != 1 {
		t.Fatalf("Inspect: %+v, %v", r, err)
	}
	return r.Holders[0]
}
