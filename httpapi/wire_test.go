package httpapi

import (
	"bytes"
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode/utf8"
)

// A body that is accepted has the name that was sent: no two bodies with different names become one.
func FuzzBody(f *testing.F) {
	for _, body := range []string{`{"request":1,"name":"a"}`, `{"name":"\ud83d\ude00"}`, `{"name":"\ud800"}`,
		`{"name":"\\ud800"}`,
		`{"name":"\ud800\ud800\udc00"}`, `{"name":"\"\udc00"}`, `{"name":"` + "\ufffd" + `"}`, `{"name":"\uFFFD"}`,
		`null`, `[`} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r := httptest.NewRequest("POST", "/", bytes.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		var in acquireIn
		if p := read(httptest.NewRecorder(), r, &in); p != nil {
			if p.status < 400 || p.Code == "" || p.Message == "" {
				t.Errorf("%+v", p)
			}
			return
		}
		if !utf8.Valid(body) || !json.Valid(body) {
			t.Fatalf("%q was accepted", body)
		}
		sent := strings.Contains(string(body), "\ufffd") || strings.Contains(strings.ToLower(string(body)), `\ufffd`)
		if strings.ContainsRune(in.Name, '\ufffd') && !sent {
			t.Errorf("%q has the name %q", body, in.Name)
		}
		in.check()
	})
}
