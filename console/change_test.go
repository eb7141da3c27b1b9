package console_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/console"
	"github.com/holdfast-lock/holdfast/memlock"
)

// postForm sends a form, as a browser does from the console's own page.
func postForm(h http.Handler, path string, form url.Values, headers ...string) (int, string) {
	r := httptest.NewRequest("POST", path, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func TestBreak(t *testing.T) {
	c := newClient(t, memlock.New(), nil)
	allowed := true
	h := console.Handler(c, &console.Options{MayChange: func(*http.Request) (string, bool) { return "ann", allowed }})
	const name = "a/\r\n b"
	l := lock(t, c, name)
	path := "/break?" + url.Values{"name": {name}, "token": {fmt.Sprint(l.Token())}}.Encode()
	good := url.Values{"typed": {`"a/\r\n b"`}, "reason": {"it hangs"}}
	without := func(key, value string) url.Values {
		v := url.Values{"typed": good["typed"], "reason": good["reason"]}
		v.Set(key, value)
		return v
	}
	own := []string{"Sec-Fetch-Site", "same-origin"}
	for what, x := range map[string]struct {
		form    url.Values
		path    string
		headers []string
		want    int
	}{
		"another site":   {good, path, []string{"Sec-Fetch-Site", "cross-site"}, 403},
		"a sibling":      {good, path, []string{"Sec-Fetch-Site", "same-site"}, 403},
		"another origin": {good, path, []string{"Origin", "http://evil.example"}, 403},
		"a null origin":  {good, path, []string{"Origin", "null"}, 403},
		"no origin":      {good, path, nil, 403},
		"another name":   {without("typed", "a/"), path, own, 400},
		"no reason":      {without("reason", " "), path, own, 400},
		"a long reason":  {without("reason", strings.Repeat("x", 501)), path, own, 400},
		"a huge reason":  {without("reason", strings.Repeat("x", 50_000)), path, own, 400},
		"no token":       {good, "/break?name=a", own, 400},
		"a stale token":  {good, strings.Replace(path, "token=", "token=9", 1), own, 409},
		"in the form": {url.Values{"name": {name}, "token": {"1"}, "typed": good["typed"], "reason": {"x"}},
			"/break", own, 400},
		"nothing in form": {nil, path + "&" + good.Encode(), own, 400},
	} {
		if code, page := postForm(h, x.path, x.form, x.headers...); code != x.want {
			t.Errorf("%s: %d, want %d: %s", what, code, x.want, text(page))
		}
	}
	allowed = false
	if code, _ := postForm(h, path, good, own...); code != 403 {
		t.Errorf("without permission: %d", code)
	}
	if code, _ := postForm(console.Handler(c, nil), path, good, own...); code != 403 {
		t.Errorf("a console that only reads: %d", code)
	}
	allowed = true
	for _, method := range []string{"GET", "HEAD", "PUT", "DELETE"} {
		r := httptest.NewRequest(method, path+"&"+good.Encode(), nil)
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code < 400 {
			t.Errorf("%s: %d", method, w.Code)
		}
	}
	if err := l.Err(); err != nil {
		t.Fatal(err)
	}
	code, page := postForm(h, path, good, own...)
	if wants(t, page, "has ended", "learns of it at its next renewal"); code != 200 {
		t.Error(code)
	}
	if r, err := c.Inspect(t.Context(), name); err != nil || len(r.Holders) != 0 {
		t.Error(r, err)
	}
	_, page = get(t, h, "/lock?name="+url.QueryEscape(name))
	wants(t, page, "broken", "it hangs (ann, at the console)")
}

// Users ask a holder to release. That needs no typed name, and takes nothing.
func TestRevoke(t *testing.T) {
	c := newClient(t, memlock.New(), nil)
	h := console.Handler(c, &console.Options{MayChange: func(*http.Request) (string, bool) { return "ann", true }})
	l := lock(t, c, "a")
	path := "/revoke?name=a&token=" + fmt.Sprint(l.Token())
	form := url.Values{"reason": {"the deploy <waits>"}}
	if code, _ := postForm(h, path, form, "Sec-Fetch-Site", "cross-site"); code != 403 {
		t.Errorf("another site: %d", code)
	}
	if code, _ := postForm(console.Handler(c, nil), path, form, "Sec-Fetch-Site", "same-origin"); code != 403 {
		t.Errorf("a console that only reads: %d", code)
	}
	if code, _ := postForm(h, path, nil, "Sec-Fetch-Site", "same-origin"); code != 400 {
		t.Errorf("no reason: %d", code)
	}
	if code, page := postForm(h, path+"9", form, "Sec-Fetch-Site", "same-origin"); code != 409 {
		t.Errorf("another token: %d %s", code, text(page))
	}
	code, page := postForm(h, path, form, "Sec-Fetch-Site", "same-origin")
	if wants(t, page, "has been asked to release"); code != 200 || l.Err() != nil {
		t.Error(code, l.Err())
	}
	_, page = get(t, h, "/lock?name=a")
	wants(t, page, "asked to release", "the deploy <waits> (ann, at the console)")
}
