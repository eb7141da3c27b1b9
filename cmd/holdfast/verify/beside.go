package verify

import (
	"fmt"
	"strings"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/history"
)

// Sides is what the two kinds of processes did in a run with Options.Beside.
type Sides struct {
	Grants  Sided
	Changes Sided // grants of a lock that the other kind had before
	Faults  Sided // faults of processes
}

// Sided is a count for each kind of process.
type Sided struct {
	Own    int // of the processes of Options.Worker
	Worker int // of those of Options.External
}

func (s *Sided) add(external bool) {
	if external {
		s.Worker++
	} else {
		s.Own++
	}
}

// MinChanges is how often a conclusive run with Options.Beside passes locks in each direction. Each kind
// also needs MinGrants, and MinFaults of its processes.
const MinChanges = 10

// sidesOf counts the grants of each kind. Events are in order of time.
func (r *run) sidesOf(events []history.Event) *Sides {
	s := &Sides{Faults: r.hit}
	external := map[string]bool{}
	for _, p := range r.all {
		external[p.name] = p.external != nil
	}
	last := map[string]bool{} // of each name: the kind of its latest grant
	for i := range events {
		e := &events[i]
		if e.Kind != history.Granted {
			continue
		}
		process, _, _ := strings.Cut(e.Client, "/")
		is := external[process]
		s.Grants.add(is)
		if was, known := last[e.Name]; known && was != is {
			s.Changes.add(is)
		}
		last[e.Name] = is
	}
	return s
}

// few returns why a run does not prove that the two kinds exclude each other.
func (s *Sides) few(faults bool) (notes []string) {
	least := func(n Sided, least int, format string) {
		for _, side := range []struct {
			n    int
			what string
		}{{n.Own, "holdfast"}, {n.Worker, "the worker"}} {
			if side.n < least {
				notes = append(notes, fmt.Sprintf(format, side.n, side.what)+fmt.Sprintf("; at least %d are needed", least))
			}
		}
	}
	least(s.Grants, MinGrants, "%d grants of %s")
	least(s.Changes, MinChanges, "%d times a lock went to %s from the other kind")
	if faults {
		least(s.Faults, MinFaults, "%d faults of processes of %s")
	}
	return notes
}

// fewFaults reports whether the faults so far are too few for a conclusive run.
func (r *run) fewFaults() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.done() < MinFaults || r.Beside > 0 && len(r.kinds) > 0 && min(r.hit.Own, r.hit.Worker) < MinFaults
}

// enoughGrants reports whether the grants so far suffice for a conclusive run, by the reports of the
// workers, which are late.
func (r *run) enoughGrants() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.Beside == 0 {
		return r.totals().Grants >= 2*MinGrants
	}
	var own, worker int64
	for _, p := range r.all {
		if n := p.progress().Grants; p.external != nil {
			worker += n
		} else {
			own += n
		}
	}
	return min(own, worker) >= 2*MinGrants
}
