package httpapi_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/httpapi"
)

// A program that goes silent with locks makes one line of the log, which names it and them. A drain
// is no reason to warn, and a program that ends its session makes no line.
func TestLogOfSilence(t *testing.T) {
	for what, x := range map[string]struct {
		end  func(*httpapi.Server, *program)
		want string // "": no line
	}{
		"silence": {func(*httpapi.Server, *program) { time.Sleep(2 * ttl) }, "level=WARN "},
		"drain": {func(s *httpapi.Server, p *program) {
			if err := s.Drain(p.t.Context()); err != nil {
				p.t.Error(err)
			}
		}, "level=INFO "},
		"end": {func(_ *httpapi.Server, p *program) { p.call("sessions/end", J{}) }, ""},
	} {
		var log bytes.Buffer
		cfg := &httpapi.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}
		inBubble(t, cfg, func(t *testing.T, _ *holdfast.Client, s *httpapi.Server, p *program) {
			p.take(1, "deploy/prod")
			p.take(2, "deploy/test")
			x.end(s, p)
		})
		lines := strings.Count(log.String(), "\n")
		switch {
		case x.want == "" && lines != 0, x.want != "" && lines != 1:
			t.Errorf("%s: %d lines: %s", what, lines, log.String())
		case x.want != "" && (!strings.Contains(log.String(), x.want) || !strings.Contains(log.String(), "client=test") ||
			!strings.Contains(log.String(), `locks="[deploy/prod deploy/test]"`) || !strings.Contains(log.String(), "session=")):
			t.Errorf("%s: %s", what, log.String())
		}
	}
}
