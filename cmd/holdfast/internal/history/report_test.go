package history

import (
	"strings"
	"testing"
)

// TestReport: the text of a report.
func TestReport(t *testing.T) {
	events, err := ReadFiles("testdata/S1_two_leases.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	text := Check(events, Options{}).String()
	for _, want := range []string{"violation\n", "S1  no second grant inside a lease: VIOLATED, once (2 grants",
		`"x": the lock was granted inside another's lease`,
		"10.000 ms  acquire client b id 2\n", "granted client b id 2 token 2 from 10.000 ms",
		"S2  no claim beyond a lease: ok"} {
		if !strings.Contains(text, want) {
			t.Errorf("the report lacks %q:\n%s", want, text)
		}
	}
	text = Check(events, Options{Except: []Class{S1}}).String()
	if !strings.HasPrefix(text, "clean\n") || !strings.Contains(text, "broken, but not promised here, once") {
		t.Errorf("an exception reads\n%s", text)
	}
	for client, want := range map[string]string{"": "4 more fds than at", "p1": "4 more fds of p1 than at"} {
		gauges := []Event{{T: 1, Kind: Gauge, Client: client, Target: "fds"},
			{T: 2, Kind: Gauge, Client: client, Target: "fds", Value: 4}}
		if text := Check(gauges, Options{}).String(); !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if text := Check(nil, Options{}).String(); !strings.HasPrefix(text, "inconclusive\n") {
		t.Errorf("no history reads\n%s", text)
	}
}

// TestReportOfFacts: a report says in words that nothing was checked, or that nothing is missing.
func TestReportOfFacts(t *testing.T) {
	hard := Check(good(1), Options{}).String()
	for _, want := range []string{"every grant has a token)", "every fault met load)", "1 fault, 1 kind of faults,"} {
		if !strings.Contains(hard, want) {
			t.Errorf("the report lacks %q:\n%s", want, hard)
		}
	}
	const unchecked = "not checked: no holder died\n"
	for file, want := range map[string]bool{"S1_two_leases": true, "L1_never": false} {
		events, err := ReadFiles("testdata/" + file + ".jsonl")
		if err != nil {
			t.Fatal(err)
		}
		r := Check(events, Options{})
		if text := r.String(); strings.Contains(text, unchecked) != want {
			t.Errorf("%s: want %q: %t:\n%s", file, unchecked, want, text)
		}
	}
	if text := Check(nil, Options{}).String(); strings.Contains(text, "every grant") ||
		strings.Contains(text, "every fault") {
		t.Errorf("no history reads\n%s", text)
	}
}

// TestOptions: the requirements of a run beyond its classes.
func TestOptions(t *testing.T) {
	events := good(2)
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{MinGrants: 10_000}, "900 grants; at least 10000 are needed"},
		{Options{MinFaults: 2}, "1 fault; at least 2 are needed"},
		{Options{MinRate: 1e9}, "grants a second"},
		{Options{MinWaiting: 1000}, "at least 1000 are needed"},
	} {
		r := Check(events, c.o)
		if r.Outcome != Inconclusive || !strings.Contains(r.String(), c.want) {
			t.Errorf("%+v: %s", c.o, r)
		}
	}
	if r := Check(events, Options{MinRate: 1, MinGrants: 900, MinFaults: 1}); r.Outcome != Clean ||
		r.Fact("grants") != 900 {
		t.Errorf("%s", r)
	}
	if r := Check(events, Options{Patience: 1}); r.Verdict(L2).Count == 0 {
		t.Errorf("no wait was longer than a nanosecond: %s", r)
	}
}
