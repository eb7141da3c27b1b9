package servers

import (
	"fmt"
	"strings"
	"testing"
)

func TestOutput(t *testing.T) {
	log := output{most: 100}
	for i := range 1000 {
		_, _ = fmt.Fprintf(&log, "line %d\n", i)
	}
	if text := log.String(); len(text) > 300 || !strings.HasSuffix(text, "line 998\nline 999\n") {
		t.Errorf("%d bytes: %q", len(text), text)
	}
}
