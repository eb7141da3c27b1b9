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

// talker is a store whose words have a password in them.
type talker struct{ driver.Backend }

func (talker) Diagnose(context.Context, time.Duration) ([]driver.Finding, error) {
	const word = "redis://u:c4nary@h said c4nary"
	return []driver.Finding{{Code: "x.y", Severity: driver.Slows, Server: word, Found: word, Why: word, Do: word}}, fmt.Errorf("%w: %s", driver.ErrRefused, word)
}

func (talker) Name() string { return "x" }

// mute is a store that cannot be examined.
type mute struct{ driver.Backend }

func (mute) Name() string { return "x" }

func TestDiagnose(t *testing.T) {
	list, err := (&Store{Backend: talker{}}).Diagnose(t.Context(), "redis://u:c4nary@h", time.Second)
	if len(list) != 1 || strings.Contains(fmt.Sprint(list, err), "c4nary") || !errors.Is(err, driver.ErrRefused) {
		t.Errorf("%v, %v", list, err)
	}
	list, err = (&Store{Backend: mute{}}).Diagnose(t.Context(), "x:", time.Second)
	if err != nil || len(list) != 1 || list[0].Code != "x.settings" || !list[0].Danger() {
		t.Errorf("%v, %v", list, err)
	}
}
