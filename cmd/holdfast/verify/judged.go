package verify

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/history"
)

// violationFile is the file of a run's folder that repeats the events of the first violation.
const violationFile = "violation.jsonl"

// Read reads histories for Judge. A folder stands for the histories that a run has kept there.
func Read(paths ...string) ([]history.Event, error) {
	var files []string
	for _, path := range paths {
		if info, err := os.Stat(path); path == history.Stdin || err != nil || !info.IsDir() {
			files = append(files, path)
			continue
		}
		inside, err := filepath.Glob(filepath.Join(path, "*.jsonl"))
		if err != nil {
			return nil, err
		}
		inside = slices.DeleteFunc(inside, func(f string) bool { return filepath.Base(f) == violationFile })
		if len(inside) == 0 {
			return nil, fmt.Errorf("%s: there is no .jsonl file in this folder", path)
		}
		files = append(files, inside...)
	}
	return history.ReadFiles(files...)
}

// shortestTime bounds the times that a history in nanoseconds can have: a smaller TTL, or history,
// is in another unit. With a TTL in another unit every lease would seem to end at once.
const shortestTime = time.Millisecond

// Judge judges a history, of any program. Events are in order of time.
func Judge(events []history.Event, o history.Options) *Result {
	begun := time.Now()
	r := &Result{Excepted: o.Except}
	faults := map[string]int{}
	strange := time.Duration(0)
	for i := range events {
		e := &events[i]
		switch e.Kind {
		case history.Run:
			r.Store = cmp.Or(r.Store, e.Text)
		case history.Fault:
			faults[cmp.Or(e.Text, "of no kind")]++
		case history.Unanswered:
			r.Errors++
		}
		r.TTL = max(r.TTL, e.TTL)
		if e.TTL > 0 && e.TTL < shortestTime {
			strange = e.TTL
		}
	}
	if strange > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("a ttl is %v: ttl is in nanoseconds", strange))
	}
	if n := len(events); n > 1 && events[n-1].T-events[0].T < int64(shortestTime) {
		r.Notes = append(r.Notes, fmt.Sprintf("the whole history takes %v: t is in nanoseconds",
			time.Duration(events[n-1].T-events[0].T)))
	}
	r.Report, r.Figures, r.Faults = history.Check(events, o), figuresOf(events, r.TTL), counted(faults)
	r.decide()
	r.Took = time.Since(begun)
	return r
}
