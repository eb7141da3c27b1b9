package httpapi_test

import (
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/httpapi"
)

// The answer to a malformed request says which field is wrong, what was given and what is allowed,
// in words that do not depend on the language of the server.
func TestWordsOfRefusals(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, _ *holdfast.Client, _ *httpapi.Server, p *program) {
		for _, x := range []struct{ path, body, want string }{
			{"acquire", `{"request":-1,"name":"a"}`, "request: -1 is given; allowed is a whole number from 1 to 2^53"},
			{"acquire", `{"request":1.5,"name":"a"}`, "request: 1.5 is given; allowed is a whole number"},
			{"acquire", `{"request":1e400,"name":"a"}`, "request: 1e400 is given; allowed is a whole number"},
			{"acquire", `{"request":"1","name":"a"}`, "request: a text is given; allowed is a whole number"},
			{"acquire", `{"request":0,"name":"a"}`, "request: 0 is given; allowed is a whole number"},
			{"acquire", `{"request":9007199254740993,"name":"a"}`, "request: 9007199254740993 is given; allowed is"},
			{"acquire", `{"request":1,"name":7}`, "name: a number is given; allowed is a text"},
			{"acquire", `{"request":1,"name":"a","mode":"x"}`, `mode: "x" is given; allowed are exclusive,`},
			{"acquire", `{"request":1,"name":"a","mode":"permits","permits":0.5}`, "permits: 0.5 is given;"},
			{"acquire", `{"request":1,"name":"a","mode":"permits","permits":-1}`, "permits: -1 is given;"},
			{"acquire", `{"request":1,"name":"a","mode":"permits","limit":-1}`, "limit: -1 is given; allowed is a whole number"},
			{"acquire", `{"request":1,"name":"a","poll_ms":2.5}`, "poll_ms: 2.5 is given;"},
			{"acquire", `{"request":1,"name":"a","poll_ms":9999999999}`, "poll_ms: 9999999999 is given;"},
			{"acquire", `{"request":1,"name":"a","wait":1}`, "wait: a number is given; allowed is true or false"},
			{"acquire", `{"request":1,"name":"a","wait":{}}`, "wait: an object is given; allowed is true or false"},
			{"acquire", `{"request":1,"name":"a","labels":{"k":true}}`, "labels: true or false is given; allowed is an object"},
			{"acquire", `{"request":1,"name":"a","labels":["x"]}`, "labels: a list is given; allowed is an object"},
			{"acquire", `{"request":1,"name":"a","ttl":1}`, `there is no field "ttl"; allowed are: request, name, mode, permits`},
			{"acquire", `[]`, "the body is a list; it must be a JSON object"},
			{"acquire", `null`, "the body is null; it must be a JSON object"},
			{"acquire", `{"request"`, "the body is no JSON: it ends too early"},
			{"acquire", `{request:1}`, "the body is no JSON: "},
			{"acquire", ``, "the body is empty"},
			{"cancel", `{"request":-5}`, "request: -5 is given; allowed is"},
			{"release", `{"lease":5}`, "lease: a number is given; allowed is a text"},
			{"sessions", `{"ttl_ms":5}`, `there is no field "ttl_ms"; allowed are: client`},
			{"sessions/end", `{"lease":"x"}`, `there is no field "lease"; allowed are: none`},
			{"sessions/heartbeat", `{"leases":[7]}`, "leases: a number is given; allowed is a list of texts"},
			{"sessions/heartbeat", `{"leases":"x"}`, "leases: a text is given; allowed is a list of texts"},
		} {
			a := p.call(x.path, x.body)
			a.is(t, 400, "invalid")
			if !strings.HasPrefix(a.Error.Message, x.want) {
				t.Errorf("%s %s: %q, want %q", x.path, x.body, a.Error.Message, x.want)
			}
			for _, word := range []string{"json:", "Go ", "int64", "uint", "float", "struct", "unmarshal"} {
				if strings.Contains(a.Error.Message, word) {
					t.Errorf("%s: %q has %q", x.body, a.Error.Message, word)
				}
			}
		}
	})
}
