package console_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/console"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/memlock"
)

// A form that does not come keeps neither its answer nor its connection for long.
func TestSlowForm(t *testing.T) {
	const form = "Sec-Fetch-Site: same-origin\r\nContent-Type: application/x-www-form-urlencoded\r\n"
	for head, want := range map[string]int{
		"POST /break?name=a&token=1 HTTP/1.1\r\n" + form: 400,
		"GET / HTTP/1.1\r\n":                             200,
		"POST /nothing HTTP/1.1\r\n":                     404,
	} {
		synctest.Test(t, func(t *testing.T) {
			h := console.Handler(newClient(t, memlock.New(), nil), &console.Options{
				MayChange: func(*http.Request) (string, bool) { return "ann", true }})
			if status, took := testenv.SlowBody(t, h, head); status != want || took > 11*time.Second {
				t.Errorf("%q: %d after %v, want %d", head, status, took, want)
			}
		})
	}
}
