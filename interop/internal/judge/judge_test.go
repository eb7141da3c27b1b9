package judge

import (
	"strings"
	"testing"
)

func TestRead(t *testing.T) {
	side := map[string]string{"1": "a", "2": "b", "3": "b", "4": "b"}
	for _, c := range []struct {
		log  string // e or l, kind, process id
		want Verdict
		ok   bool
	}{
		{"em1 lm1 em2 lm2 em3 lm3 em1 lm1", Verdict{Turns: 2, Most: 1}, true},
		{"em1 em2 lm1 lm2", Verdict{}, false},
		{"em1 em1", Verdict{}, false},
		{"lm1", Verdict{}, false},
		{"em1", Verdict{}, false},
		{"em9 lm9", Verdict{}, false},
		{"er1 er2 er3 lr1 lr2 lr3 ew1 lw1", Verdict{Turns: 2, Mixed: 2, Most: 3}, true},
		{"er1 ew2 lw2 lr1", Verdict{}, false},
		{"ew1 er2 lr2 lw1", Verdict{}, false},
		{"ew1 ew2 lw2 lw1", Verdict{}, false},
		{"es1 es2 es3 ls1 es4 ls2 ls3 ls4", Verdict{Turns: 1, Mixed: 2, Most: 3}, true},
		{"ep1.a ep1.b ep2.a lp1.b ep3.a lp1.a lp2.a lp3.a", Verdict{Turns: 1, Mixed: 2, Most: 3}, true},
		{"ep1.a ep1.b ep2.a ep3.a lp1.b lp1.a lp2.a lp3.a", Verdict{}, false},
		{"ef1.a ef1.b lf1.a lf1.b", Verdict{}, false},
		{"es1 es2 es3 es4 ls1 ls2 ls3 ls4", Verdict{}, false},
	} {
		words := strings.NewReplacer("e", "enter ", "l", "leave ", "m", "mutex ", "r", "read ", "w", "write ", "s",
			"semaphore ", "p", "permit ", "f", "fair ")
		var log strings.Builder
		for f := range strings.FieldsSeq(c.log) {
			log.WriteString(words.Replace(f[:1]) + words.Replace(f[1:2]) + f[2:] + " 0\n")
		}
		v, err := Read(log.String(), side, 3)
		if (err == nil) != c.ok || c.ok && v != c.want {
			t.Errorf("%s: %+v, %v", c.log, v, err)
		}
	}
}
