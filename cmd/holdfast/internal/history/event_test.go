package history

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-lock/holdfast/driver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// full has a value in every field.
var full = Event{
	T: 1, Kind: Acquire, Client: "p/c", ID: "\"1\"\n\x00", Name: "näme\xff", Target: "t", Text: "<&> ", TTL: 5,
	Token: 1<<64 - 1,
	From:  7, Value: -8, N: 2, Limit: 3, Mode: driver.Permits, Result: Unknown, Wait: true,
}

func TestCodec(t *testing.T) {
	for v, i := reflect.ValueOf(full), 0; i < v.NumField(); i++ {
		if v.Field(i).IsZero() {
			t.Errorf("full has no %s: the test does not cover this field", v.Type().Field(i).Name)
		}
	}
	var events []Event
	for k := Kind(1); k < kinds; k++ {
		e := full
		e.Kind, e.T = k, int64(k)
		e.Name = strings.ToValidUTF8(e.Name, "?") // JSON is UTF-8
		if k == Run {
			e.Target = Observed
		}
		events = append(events, e)
	}
	var buf bytes.Buffer
	r := NewRecorder(&buf)
	for _, e := range events {
		r.Record(e)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	back, err := ReadAll(&buf)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(events, back) {
		t.Errorf("written %+v\nread    %+v", events, back)
	}
}

func TestReadBad(t *testing.T) {
	good := `{"t":1,"kind":"queued","id":"1"}` + "\n"
	for _, c := range []struct{ text, want string }{
		{"{", "unexpected EOF"},
		{`{"t":1,"kind":"nonsense"}`, `kind "nonsense" is not known`},
		{`{"t":1}`, `kind "" is not known`},
		{`{"t":-1,"kind":"run"}`, "allowed are 0 to 2^60"},
		{`{"t":1,"kind":"run","colour":2}`, "unknown field"},
		{`{"t":1,"kind":"acquire","mode":"both","id":"1"}`, "allowed are exclusive, shared and permits"},
		{`{"t":1,"kind":"released","id":"1","result":"maybe"}`, "allowed are accepted, rejected and unknown"},
		{`{"t":1,"kind":"released","id":"1"}`, "needs an id and a result"},
		{`{"t":1,"kind":"acquire","mode":"permits","n":3,"limit":2,"id":"1"}`, "a limit not below n"},
		{`{"t":1,"kind":"run","target":"other"}`, "can only be observed or unordered"},
		{`{"t":1,"kind":"run"}{}`, "more than one"},
		{`[]`, "expected one JSON object, not an array"},
		{`5`, "expected one JSON object, not a number"},
		{`{"t":5.5}`, "t: expected a whole number below 2^63, not 5.5"},
		{`{"t":5e9}`, "t: expected a whole number below 2^63, not 5e9"},
		{`{"t":99999999999999999999}`, "t: expected a whole number below 2^63, not 99999999999999999999"},
		{`{"n":3000000000}`, "n: expected a whole number below 2^31, not 3000000000"},
		{`{"token":-7}`, "token: expected a whole number from 0 to 2^64-1, not -7"},
		{`{"kind":[]}`, "kind: expected a text, not an array"},
		{`{"wait":"yes"}`, "wait: expected true or false, not a string"},
		{strings.Repeat(" ", 2<<20), "longer than"},
	} {
		_, err := ReadAll(strings.NewReader(good + "\n" + c.text + "\n" + good))
		var at *LineError
		if !errors.As(err, &at) || at.Line != 3 || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.60q: %v; want line 3 and %q", c.text, err, c.want)
		}
	}
	// So is a last line without a line break, if it is complete.
	for _, text := range []string{`[{"t":1,"kind":"run"}]`, `{"t":1,"kind":"nonsense"}`, "words"} {
		if events, err := ReadAll(strings.NewReader(text)); err == nil {
			t.Errorf("%q as the last line: %v", text, events)
		}
	}
	// The incomplete line of a killed process is no error.
	events, err := ReadAll(strings.NewReader(good+`{"t":2,"ki`), strings.NewReader(good+`{"t":2,"kind":"run"}`))
	if err != nil || len(events) != 3 || events[2].Kind != Run {
		t.Errorf("%v, %v", events, err)
	}
}

func TestReadFiles(t *testing.T) {
	dir := t.TempDir()
	var paths []string
	for i, process := range []string{"a", "b"} {
		path := filepath.Join(dir, process)
		paths = append(paths, path)
		for run := range 2 { // a restarted process appends
			r, err := Create(path)
			if err != nil {
				t.Fatal(err)
			}
			r.Process = process
			r.Record(Event{T: int64(10*run + i + 1), Kind: Closed, Client: "x"})
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	events, err := ReadFiles(paths...)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range events {
		got = append(got, e.Client)
	}
	if want := []string{"a/x", "b/x", "a/x", "b/x"}; !reflect.DeepEqual(got, want) {
		t.Errorf("merged to %v; want %v", got, want)
	}
	if _, err := ReadFiles(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	if err := os.WriteFile(paths[1], []byte("x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadFiles(paths...); err == nil || !strings.Contains(err.Error(), paths[1]+":1: ") {
		t.Errorf("a bad line: %v", err)
	}
}

func TestRecorder(t *testing.T) {
	var buf bytes.Buffer
	r := NewRecorder(&buf)
	r.Process = "p"
	var writers sync.WaitGroup
	for range 8 {
		writers.Go(func() {
			for range 100 {
				r.Record(Event{Kind: Queued, ID: "1"})
			}
		})
	}
	writers.Wait()
	before := Now()
	if at := r.Record(Event{Kind: Died, Client: "q"}); at < before || at > Now() {
		t.Errorf("stamped %d outside of the call, which began at %d", at, before)
	}
	if err := r.Err(); err != nil {
		t.Fatal(err)
	}
	events, err := ReadAll(&buf)
	if err != nil || len(events) != 801 {
		t.Fatalf("%d events, %v; want 801", len(events), err)
	}
	if events[0].Client != "p" || events[800].Client != "q" {
		t.Errorf("clients %q and %q; want p and q", events[0].Client, events[800].Client)
	}

	r.Record(Event{Kind: Released, ID: "1"})
	r.Record(Event{Kind: Queued, ID: "1"})
	if err := r.Close(); err == nil || !strings.Contains(err.Error(), "needs an id and a result") || buf.Len() != 0 {
		t.Errorf("a bad event: %v, %d bytes written after it", err, buf.Len())
	}
	full := NewRecorder(failing{})
	full.Record(Event{Kind: Run})
	if err := full.Err(); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("a writer that fails: %v", err)
	}
	var none *Recorder
	none.Record(Event{Kind: Run})
	if none.Err() != nil || none.Close() != nil {
		t.Error("a nil recorder has an error")
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

// FuzzRead: any file is read or refused. A file that was read is written the same way, and can be
// judged and drawn.
func FuzzRead(f *testing.F) {
	f.Add(append(full.append(nil), '\n'))
	f.Add([]byte(`{"t":1,"kind":"run","text":"x"}` + "\n{\n"))
	paths, _ := filepath.Glob("testdata/*.jsonl")
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		events, err := ReadAll(bytes.NewReader(data))
		var at *LineError
		if err != nil && (!errors.As(err, &at) || at.Line < 1) {
			t.Fatalf("%v (%T) is no LineError", err, err)
		}
		var buf bytes.Buffer
		r := NewRecorder(&buf)
		r.Clock = func() int64 { return 0 }
		for _, e := range events {
			r.Record(e)
		}
		if err := r.Close(); err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		back, err := ReadAll(&buf)
		if err != nil || len(back) != len(events) {
			t.Fatalf("what was written cannot be read: %d events of %d, %v", len(back), len(events), err)
		}
		for i := range back {
			if back[i] != events[i] {
				t.Fatalf("read %+v, and again %+v", events[i], back[i])
			}
		}
		report := Check(events, Options{Timeout: time.Second})
		for _, v := range report.Violations() {
			if err := report.Draw(io.Discard, v); err != nil {
				t.Fatal(err)
			}
		}
		_ = report.String()
	})
}

func BenchmarkRecord(b *testing.B) {
	r := NewRecorder(io.Discard)
	b.ReportAllocs()
	for b.Loop() {
		r.Record(Event{Kind: Granted, Client: "worker1/c", ID: "abcdef-12", Name: "a", Token: 1 << 50, From: 1 << 50})
	}
}
