package cli

import (
	"strings"
	"testing"
)

// A manual page has the text of the help, and no line that the formatter takes for a command.
func TestMan(t *testing.T) {
	code, out, errs := try("man", "latch", "wait")
	if code != 0 || errs != "" || !strings.HasPrefix(out, ".TH HOLDFAST\\-LATCH\\-WAIT 1 ") ||
		!strings.Contains(out, "\n.SH SYNOPSIS\n.nf\nholdfast latch wait NAME [flags]\n.fi\n") {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
	if code, out, errs = try("man", "lss"); code != exitUsage || out != "" || !strings.Contains(errs, "did you mean ls?") {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
	const want = "\\&.x \\e\\-\n\\&'y"
	if got := roff(".x \\-\n'y"); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
