package history

import (
	"bytes"
	"strings"
	"testing"
)

// draw returns the picture of the first violation of a history.
func draw(t *testing.T, r *Report) string {
	t.Helper()
	if len(r.Violations()) == 0 {
		t.Fatalf("no violation:\n%s", r)
	}
	var page bytes.Buffer
	if err := r.Draw(&page, r.Violations()[0]); err != nil {
		t.Fatal(err)
	}
	return page.String()
}

// TestDraw: every violation of the hand-made histories can be drawn. The page says what happened, has the
// lane of each client, and one place where it becomes red.
func TestDraw(t *testing.T) {
	for file, want := range map[string]string{
		"S1_two_leases":                         "A and B both had the lock for 20ms.",
		"S1_answered_late":                      "No order of the grants and releases explains the clients&#39; observations.",
		"S1_gone_early":                         "explains the clients&#39; observations.",
		"S1_without_tokens":                     "A and B both had the lock for ",
		"S2_held_when_over":                     "A and B both had the lock for ",
		"S2_held_after_lost":                    "reported the lease as valid after it had reported it as lost.",
		"S3_stale_write":                        "writes 1 to the guarded resource, token 1: accepted",
		"S4_twice":                              "was granted twice.",
		"S5_before_the_downgrade":               "A and B both had the lock for ",
		"S5_reader_during_writer":               "A and B both had the lock for ",
		"S5_too_many_permits":                   "A and B both had permits, 4 in all with a limit of 3, for 20ms.",
		"S5_permits_left":                       "at the end the store has ",
		"L1_never":                              "ends without a release",
		"L2_refused_though_free":                "The lock was refused although no client had it or waited for it.",
		"L2_never_answered":                     "The call was never answered, and its client did not end.",
		"L3_overtaken":                          "A later request",
		"L4_leak":                               "p1 has 14 goroutines",
		"S2_asserted_after_a_stop":              "is told by the library that its lease is valid",
		"L2_permits_forgotten":                  "asks for ",
		"S3_final_value":                        "at the end the guarded resource has the value ",
		"S2_held_after_the_next":                "The library reported the lease as valid after a later grant that excludes it.",
		"S2_handed_over_too_late":               "The library reported the lease as valid after a later grant that excludes it.",
		"S3_value_from_nowhere":                 "A value was read that no attempt wrote.",
		"L2_refused_after_a_death":              "is refused",
		"L1_no_recovery":                        "No attempt got the lock for ",
		"L2_reader_forgotten":                   "asks for the lock as a reader",
		"S4_back_after_waiting":                 "was granted after token",
		"L4_holder_left":                        "at the end the store has ",
		"S1_forgotten":                          "The store has 0 holders; the clients have 1 under guaranteed leases.",
		"S3_lost_update":                        "An update was lost",
		"L2_lost_wake_up":                       "No attempt got the lock for ",
		"S2_granted_while_it_was_being_stopped": "The library reported the lease as valid after a later grant that excludes it.",
	} {
		t.Run(file, func(t *testing.T) {
			events, err := ReadFiles("testdata/" + file + ".jsonl")
			if err != nil {
				t.Fatal(err)
			}
			page := draw(t, Check(events, Options{}))
			if !strings.Contains(page, want) {
				_, body, _ := strings.Cut(page, "<body>")
				t.Errorf("the page lacks %q:\n%s", want, body)
			}
			if n := strings.Count(page, `class="conflict begins"`); n != 1 {
				t.Errorf("the violation begins %d times", n)
			}
			for _, word := range []string{"orcupine", "http:", "https:", `src="`, "url(", "<script", "@import", "<link"} {
				if strings.Contains(page, word) {
					t.Errorf("the page contains %q", word)
				}
			}
		})
	}
}

// busy returns the report of a long history in which a token was granted twice.
func busy(t *testing.T) *Report {
	t.Helper()
	d := &damaged{nil, good(1)}
	a := d.at("exclusive-150", Granted)
	a.Token++
	d.at("exclusive-151", Granted).Token = a.Token
	r := Check(d.events, Options{})
	if r.Verdict(S4).Count == 0 {
		t.Fatal(r)
	}
	return r
}

// TestDrawIsSmall: a violation in a long history is drawn with its surroundings only.
func TestDrawIsSmall(t *testing.T) {
	page := draw(t, busy(t))
	lines, lanes := strings.Count(page, "<tr"), strings.Count(page, `<th scope="col" class="lane">`)
	if lines < 8 || lines > maxBefore+maxAfter+3 || lanes < 2 || lanes > maxAround+2 {
		t.Errorf("%d lines and %d lanes are drawn", lines, lanes)
	}
}

// TestDrawEscapes: nothing in a history becomes a part of the page.
func TestDrawEscapes(t *testing.T) {
	events, err := ReadFiles("testdata/S1_two_leases.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	hostile := func(s string) string { return "<script>alert(1)</script></style>" + s }
	for i := range events {
		e := &events[i]
		e.Client, e.ID, e.Name, e.Text = hostile(e.Client), hostile(e.ID), hostile(e.Name), hostile(e.Text)
	}
	page := draw(t, Check(events, Options{}))
	if strings.Contains(page, "<script") || strings.Count(page, "</style>") != 2 || !strings.Contains(page, "&lt;script") {
		t.Error(page)
	}
}
