package holdfast

import (
	"testing"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/memlock"
)

// Permits may be given back between the choice of the lease to borrow from and the loan.
func TestLoanOfPermitsThatWereGivenBack(t *testing.T) {
	c, err := New(t.Context(), memlock.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(t.Context()) }()
	l, err := c.Semaphore("s", 3).Acquire(t.Context(), 3)
	if err != nil {
		t.Fatal(err)
	}
	two := driver.Request{Name: "s", Mode: driver.Permits, N: 2, Limit: 3}
	chosen, err := c.carried(l.Context(t.Context()), &two, &options{reentrant: true})
	if err != nil || chosen != l {
		t.Fatalf("to borrow from: %v, %v", chosen, err)
	}
	if err := l.ReleasePermits(2); err != nil {
		t.Fatal(err)
	}
	if b, err := chosen.lend("acquire", &two, &options{}); err != errGivenBack {
		t.Errorf("a lease with 1 permit lends 2: %v, %v", b, err)
	}
}
