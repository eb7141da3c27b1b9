package interop

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// sideByID has the name of each process's side.
type sideByID map[string]string

// verdict is the summary of a contest's log.
type verdict struct {
	turns int // times that the lock changed sides
	mixed int // times that a contender came in while another side was inside
	most  int // the most contenders inside at once
}

// judge reads the log, and returns an error if two contenders that exclude each other were inside
// together. Contenders write a line inside the lock, so the order of the lines is the order of
// events, and needs no clock.
func judge(log string, side sideByID, limit int) (verdict, error) {
	var v verdict
	inside := map[string]string{} // kind by process id
	last, n := "", 0
	for line := range strings.Lines(log) {
		n++
		f := strings.Fields(line)
		if len(f) != 4 || side[f[2]] == "" {
			return v, fmt.Errorf("line %d of the log is %q", n, line)
		}
		what, kind, pid := f[0], f[1], f[2]
		bad := fmt.Errorf("line %d of the log is %q, and inside are %v", n, line, inside)
		if what == "leave" {
			if inside[pid] != kind {
				return v, bad
			}
			delete(inside, pid)
			continue
		}
		mixed := false
		for other, k := range inside {
			if k != kind || kind == "write" || kind == "mutex" || other == pid || kind == "semaphore" && len(inside) == limit {
				return v, bad
			}
			mixed = mixed || side[other] != side[pid]
		}
		if mixed {
			v.mixed++
		}
		inside[pid] = kind
		v.most = max(v.most, len(inside))
		if last != "" && last != side[pid] {
			v.turns++
		}
		last = side[pid]
	}
	if len(inside) > 0 {
		return v, fmt.Errorf("at the end of the log are inside: %v", inside)
	}
	return v, nil
}

func TestJudge(t *testing.T) {
	side := sideByID{"1": "a", "2": "b", "3": "b", "4": "b"}
	for _, c := range []struct {
		log  string // e or l, kind, process id
		want verdict
		ok   bool
	}{
		{"em1 lm1 em2 lm2 em3 lm3 em1 lm1", verdict{turns: 2, most: 1}, true},
		{"em1 em2 lm1 lm2", verdict{}, false},
		{"em1 em1", verdict{}, false},
		{"lm1", verdict{}, false},
		{"em1", verdict{}, false},
		{"em9 lm9", verdict{}, false},
		{"er1 er2 er3 lr1 lr2 lr3 ew1 lw1", verdict{turns: 2, mixed: 2, most: 3}, true},
		{"er1 ew2 lw2 lr1", verdict{}, false},
		{"ew1 er2 lr2 lw1", verdict{}, false},
		{"ew1 ew2 lw2 lw1", verdict{}, false},
		{"es1 es2 es3 ls1 es4 ls2 ls3 ls4", verdict{turns: 1, mixed: 2, most: 3}, true},
		{"es1 es2 es3 es4 ls1 ls2 ls3 ls4", verdict{}, false},
	} {
		words := strings.NewReplacer("e", "enter ", "l", "leave ", "m", "mutex ", "r", "read ", "w", "write ", "s",
			"semaphore ")
		var log strings.Builder
		for f := range strings.FieldsSeq(c.log) {
			log.WriteString(words.Replace(f[:1]) + words.Replace(f[1:2]) + f[2:] + " 0\n")
		}
		v, err := judge(log.String(), side, 3)
		if (err == nil) != c.ok || c.ok && v != c.want {
			t.Errorf("%s: %+v, %v", c.log, v, err)
		}
	}
}

// On either side, a contender that finds the marker of one that it excludes reports it.
func TestMarkersShowOverlap(t *testing.T) {
	w := newWorld(t)
	actors := []*actor{w.peer(curator).actor("a", longSession), w.peer(ours).actor("a", longSession)}
	for _, c := range []struct {
		kind, marker string
		overlap      bool
	}{
		{"mutex", "writer", true},
		{"mutex", "readers/x", true},
		{"mutex", "nobody", false},
		{"write", "writer", true},
		{"write", "readers/x", true},
		{"read", "writer", true},
		{"read", "readers/x", false},
		{"semaphore", "slots/0", true},
		{"semaphore", "writer", false},
	} {
		for _, a := range actors {
			counter, log := prepared(t)
			if err := create(filepath.Join(filepath.Dir(counter), c.marker), "x"); err != nil {
				t.Fatal(err)
			}
			a.send("rounds", c.kind, "-", 1, counter, log, 1)
			if r := a.reply(); strings.Contains(r, "overlap: ") != c.overlap || strings.HasPrefix(r, "ok ") == c.overlap {
				t.Errorf("%s: %s during %s: %s", a, c.kind, c.marker, r)
			}
		}
	}
}

func prepared(t *testing.T) (counter, log string) {
	t.Helper()
	counter, log, err := prepare(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return counter, log
}
