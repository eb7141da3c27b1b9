package quorum_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
)

// A ticket with an edited token is invalid: an adopted grant has its own token.
func TestEditedTicket(t *testing.T) {
	t.Parallel()
	g := start(t, 3, time.Minute)
	client := func() *holdfast.Client {
		c := connect(t, g.backend(g.addrs()), &holdfast.Config{TTL: 10 * time.Second})
		return c
	}
	giver, taker := client(), client()
	for what, add := range map[string]int64{"larger": 1 << 50, "smaller": -1} {
		t.Run(what, func(t *testing.T) {
			l, err := giver.Mutex("x-" + what).Lock(within(t))
			if err != nil {
				t.Fatal(err)
			}
			ticket, _, err := l.HandOff()
			if err != nil {
				t.Fatal(err)
			}
			b, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(ticket, "holdfast2."))
			if err != nil {
				t.Fatal(err)
			}
			fields := map[string]any{}
			if err := json.Unmarshal(b, &fields); err != nil {
				t.Fatal(err)
			}
			fields["token"] = fmt.Sprint(int64(l.Token()) + add)
			b, err = json.Marshal(fields)
			if err != nil {
				t.Fatal(err)
			}
			got, err := taker.Adopt(within(t), "holdfast2."+base64.RawURLEncoding.EncodeToString(b))
			if err == nil {
				t.Errorf("adopted with token %d what was granted with token %d; after two renewals: %v", got.Token(), l.Token(),
					got.Err())
				return
			}
			if !errors.Is(err, holdfast.ErrGone) {
				t.Errorf("Adopt: %v", err)
			}
		})
	}
}
