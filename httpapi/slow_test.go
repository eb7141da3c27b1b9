package httpapi_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/httpapi"
	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// A body that does not come keeps neither its answer nor its connection for long, whatever the answer is.
func TestSlowBody(t *testing.T) {
	const session, kind = "Holdfast-Session: x\r\n", "Content-Type: application/json\r\n"
	for head, want := range map[string]int{
		"POST /v1/sessions HTTP/1.1\r\n" + kind:              400,
		"POST /v1/sessions HTTP/1.1\r\n":                     415,
		"POST /v1/release HTTP/1.1\r\n" + kind + session:     400,
		"GET /v1/locks HTTP/1.1\r\n":                         200,
		"POST /nothing HTTP/1.1\r\n":                         404,
		"POST /v1/sessions HTTP/1.1\r\nOrigin: http://x\r\n": 403,
	} {
		synctest.Test(t, func(t *testing.T) {
			status, took := testenv.SlowBody(t, httpapi.New(client(t, nil), nil), head)
			if status != want || took > 11*time.Second {
				t.Errorf("%q: %d after %v, want %d", head, status, took, want)
			}
		})
	}
}
