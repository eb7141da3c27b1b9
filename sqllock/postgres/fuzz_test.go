package postgres

import (
	"testing"

	"github.com/holdfast-lock/holdfast/sqllock"
)

// FuzzParse: a notification is parsed or ignored, and those of Announce are parsed.
func FuzzParse(f *testing.F) {
	f.Add("a-1 77 6e", "a-1", uint64(77), "n")
	f.Add("a 1", "b", uint64(0), "")
	f.Add(" 18446744073709551615 zz", "", uint64(1)<<62, "\x00é")
	s, others := secret("0123456789abcdef"), secret("0123456789abcdeg")
	f.Fuzz(func(t *testing.T, payload, id string, token uint64, name string) {
		if r, ok := s.parse("hf_a", payload); ok {
			t.Errorf("%q, without a seal, is parsed as %+v", payload, r)
		}
		if r, ok := s.parse("hf_a", payload+" "+s.seal("hf_a", payload)); ok && r.ID == "" {
			t.Errorf("%q has no ID", payload)
		}
		for _, c := range id {
			if c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z') {
				return // no request has such an ID
			}
		}
		if id == "" || token >= 1<<63 {
			return
		}
		said := sqllock.RingText(sqllock.Ring{ID: id, Token: token, Name: name})
		if r, ok := others.parse("hf_a", said+" "+s.seal("hf_a", said)); ok {
			t.Errorf("%q, with another's seal, is parsed as %+v", said, r)
		}
		if r, ok := s.parse("hf_b", said+" "+s.seal("hf_a", said)); ok {
			t.Errorf("%q, on another channel, is parsed as %+v", said, r)
		}
		r, ok := s.parse("hf_a", said+" "+s.seal("hf_a", said))
		if !ok || r.ID != id || r.Token != token || r.Name != name {
			t.Errorf("%q %d %q: parsed as %+v, %v", id, token, name, r, ok)
		}
	})
}
