package open

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// leakyStore is a store whose texts have a password in them.
type leakyStore struct{ driver.Backend }

func (leakyStore) Diagnose(context.Context, time.Duration) ([]driver.Finding, error) {
	const text = "redis://u:c4nary-of-this@h returned c4nary-of-this"
	return []driver.Finding{{Code: "x.y", Severity: driver.Slows, Server: text, Found: text, Why: text, Do: text}},
		fmt.Errorf("%w: %s", driver.ErrRefused, text)
}

func (leakyStore) Name() string { return "x" }

// plainStore is a store that cannot be examined.
type plainStore struct{ driver.Backend }

func (plainStore) Name() string { return "x" }

func TestDiagnose(t *testing.T) {
	list, err := (&Store{Backend: leakyStore{}}).Diagnose(t.Context(), "redis://u:c4nary-of-this@h", time.Second)
	if len(list) != 1 || strings.Contains(fmt.Sprint(list, err), "c4nary-of-this") || !errors.Is(err, driver.ErrRefused) {
		t.Errorf("%v, %v", list, err)
	}
	list, err = (&Store{Backend: plainStore{}}).Diagnose(t.Context(), "x:", time.Second)
	if err != nil || len(list) != 1 || list[0].Code != "x.settings" || !list[0].Danger() {
		t.Errorf("%v, %v", list, err)
	}
}
