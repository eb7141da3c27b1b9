package driver_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/holdfast-lock/holdfast/driver"
)

func TestInfo(t *testing.T) {
	i := driver.Info{Host: "h", PID: 7, User: "u", Program: "p", Note: "line\nbreak \"quoted\" 日本",
		Labels: map[string]string{"k": "v"}}
	if got := driver.ParseInfo(i.String()); !reflect.DeepEqual(got, i) {
		t.Errorf("%+v became %+v", i, got)
	}
	if strings.ContainsAny(i.String(), "\n\r") {
		t.Errorf("more than one line: %q", i)
	}
	if got := driver.ParseInfo("somebody else's text"); got.Note != "somebody else's text" {
		t.Errorf("foreign text became %+v", got)
	}
	if got := driver.ParseInfo(""); !reflect.DeepEqual(got, driver.Info{}) {
		t.Errorf("no text became %+v", got)
	}
}

func TestRequestCheck(t *testing.T) {
	good := driver.Request{ID: "a-1", Name: "x", Mode: driver.Permits, N: 2, Limit: 3}
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	for want, spoil := range map[string]func(*driver.Request){
		"it is empty":      func(r *driver.Request) { r.Name = "" },
		"513 bytes":        func(r *driver.Request) { r.Name = strings.Repeat("x", 513) },
		"not valid UTF-8":  func(r *driver.Request) { r.Name = "\xff" },
		"request id: 0":    func(r *driver.Request) { r.ID = "" },
		"49 bytes":         func(r *driver.Request) { r.ID = strings.Repeat("x", 49) },
		"0-9, a-z and -":   func(r *driver.Request) { r.ID = "a b" },
		"mode 0":           func(r *driver.Request) { r.Mode = 0 },
		"mode 4":           func(r *driver.Request) { r.Mode = 4 },
		"N must be 1":      func(r *driver.Request) { r.Mode = driver.Shared },
		"limit -1":         func(r *driver.Request) { r.Limit = -1 },
		"permits 4":        func(r *driver.Request) { r.N = 4 },
		"permits 0":        func(r *driver.Request) { r.N = 0 },
		"minimum hold -1":  func(r *driver.Request) { r.MinHold = -1 },
		"note and labels":  func(r *driver.Request) { r.Info = strings.Repeat("i", driver.MaxInfo+1) },
		"allowed are 0 to": func(r *driver.Request) { r.MinHold = driver.MaxHold + 1 },
	} {
		r := good
		spoil(&r)
		if err := r.Check(); !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v; want ErrInvalid with %q", err, want)
		}
	}
}

func FuzzInfo(f *testing.F) {
	f.Add(driver.Info{Host: "h", PID: 1, Labels: map[string]string{"a": "b"}}.String())
	f.Add(`{"pid":"x"}`)
	f.Add("\xff\x00{")
	f.Add(`{"pid":0,"lABels":{}}`)
	f.Fuzz(func(t *testing.T, s string) {
		i := driver.ParseInfo(s)
		if again := driver.ParseInfo(i.String()); utf8.ValidString(s) && !reflect.DeepEqual(i, again) {
			t.Errorf("%q became %+v and then %+v", s, i, again)
		}
	})
}
