package redislock_test

import (
	"testing"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// TestWithdrawnWhileYielding: a request is withdrawn from a member before its Yield is answered, and goes
// on. After that answer the member's session cancels its place, without an answer. The request is asked
// for again, and then the cancellation arrives. It does not end the new grant.
func TestWithdrawnWhileYielding(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	yielded := newLateAnswer(dialRueidis(t, server.Addr), "-- Gives a grant to another waiter")
	conn := newLateCancel(yielded)
	m, s := joined(t, conn)
	_, other := joined(t, dialRueidis(t, server.Addr))
	r, to := exclusive("x"), exclusive("x")
	held, _, err := s.Ask(within(t, soon), r, 0)
	if err != nil || held.Token == 0 {
		t.Fatalf("Ask: %+v, %v", held, err)
	}
	waits, _, err := other.Ask(within(t, soon), to, 0)
	if err != nil || waits.Wake == nil {
		t.Fatalf("Ask: %+v, %v; want a place", waits, err)
	}
	yields := make(chan struct{})
	go func() {
		defer close(yields)
		_, _, _ = s.Yield(within(t, soon), driver.Hold{Name: "x", ID: r.ID, Token: held.Token}, to.ID, 0, 1)
	}()
	<-yielded.done
	if _, err := s.Withdraw(within(t, soon), "x", r.ID, held.Token); err != nil {
		t.Fatal(err)
	}
	close(yielded.answer)
	<-yields
	conn.waitFor(t)
	if err := other.Pass(within(t, soon), driver.Hold{Name: "x", ID: to.ID, Token: <-waits.Wake}, 0, 0); err != nil {
		t.Fatal(err)
	}
	grantedBeside(t, conn, m, s, r, 0)
}
