package testenv

import (
	"strings"
	"testing"
)

// When a test fails, it shows the last lines that its servers have printed.
const (
	shownLines = 40
	mostLog    = 64 << 10 // bytes of a server's log that are searched for them
)

// lastLines returns the last n lines of text.
func lastLines(text string, n int) string {
	text = strings.TrimRight(text, "\n")
	for i := len(text); i >= 0; i = strings.LastIndexByte(text[:i], '\n') {
		if n--; n < 0 {
			return text[i+1:]
		}
	}
	return text
}

// showWhenFailed shows the log of a server if t has failed. Its cleanup runs before the one that
// ends the server, so the log shows what the server did during the test, not its end.
func showWhenFailed(t testing.TB, s *server) {
	if w, ok := t.(*wholePackage); ok {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.servers = append(w.servers, s)
		return
	}
	t.Cleanup(func() { s.show(t) })
}

// showWhenFailed does the same for one test of the package.
func (w *wholePackage) showWhenFailed(t testing.TB) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.users[t] { // registered before
		return
	}
	if w.users == nil {
		w.users = map[testing.TB]bool{}
	}
	w.users[t] = true
	t.Cleanup(func() {
		w.mu.Lock()
		servers := w.servers
		delete(w.users, t)
		w.mu.Unlock()
		for _, s := range servers {
			s.show(t)
		}
	})
}

// show logs the end of the server's output, if t has failed.
func (s *server) show(t testing.TB) {
	if !t.Failed() {
		return
	}
	text := lastLines(s.run.Output(mostLog), shownLines)
	if text == "" {
		text = "nothing"
	}
	t.Logf("what %s at %s has printed last:\n%s", s.what, s.Addr, text)
}
