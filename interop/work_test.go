package interop

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// work is the work under a lock, in files that all contenders share; curator's Work does the same.
// It needs no clock. Inside the lock a contender keeps a marker in the folder, which only one can
// create. It looks for the markers of contenders that it excludes.
type work struct {
	counter, log   string
	writer         string // the marker of an exclusive holder
	readers, slots string // folders with a marker for each reader, and for each permit in use
	self           string
	limit          int

	rounds, writes int
	shared         int // rounds in which another reader was inside
	full           int // rounds in which all permits were in use
}

func newWork(counter, log, actor string, limit int) *work {
	dir := filepath.Dir(counter)
	return &work{
		counter: counter, log: log, limit: limit, self: fmt.Sprint(os.Getpid(), ".", actor),
		writer: filepath.Join(dir, "writer"), readers: filepath.Join(dir, "readers"), slots: filepath.Join(dir, "slots"),
	}
}

// prepare creates the files that the work needs in dir.
func prepare(dir string) (counter, log string, err error) {
	counter, log = filepath.Join(dir, "counter"), filepath.Join(dir, "log")
	err = errors.Join(os.MkdirAll(filepath.Join(dir, "readers"), 0o700), os.MkdirAll(filepath.Join(dir, "slots"), 0o700),
		os.WriteFile(counter, []byte("0"), 0o600), os.WriteFile(log, nil, 0o600))
	return counter, log, err
}

func (w *work) critical(kind string) (err error) {
	switch kind {
	case "mutex", "write":
		err = w.alone(kind)
	case "read":
		err = w.together()
	case "semaphore":
		err = w.permit()
	default:
		err = fmt.Errorf("unknown kind %q", kind)
	}
	w.rounds++
	return err
}

func (w *work) report() string {
	return fmt.Sprintf("rounds=%d writes=%d shared=%d full=%d", w.rounds, w.writes, w.shared, w.full)
}

func (w *work) alone(kind string) error {
	if err := w.placeMarker(w.writer, kind); err != nil {
		return err
	}
	others, err := os.ReadDir(w.readers)
	if err != nil {
		return err
	}
	if len(others) > 0 {
		return w.overlap(kind, fmt.Sprint("the readers ", others))
	}
	n, err := w.read()
	if err != nil {
		return err
	}
	pause(500)
	if err := os.WriteFile(w.counter, []byte(strconv.Itoa(n+1)), 0o600); err != nil {
		return err
	}
	w.writes++
	return w.removeMarker(w.writer, kind)
}

func (w *work) together() error {
	marker := filepath.Join(w.readers, w.self)
	if err := w.placeMarker(marker, "read"); err != nil {
		return err
	}
	if b, err := os.ReadFile(w.writer); err == nil {
		return w.overlap("read", "the writer "+string(b))
	}
	before, err := w.read()
	if err != nil {
		return err
	}
	pause(1000)
	after, err := w.read()
	if err != nil {
		return err
	}
	if before != after {
		return w.overlap("read", fmt.Sprintf("a writer: the counter went from %d to %d", before, after))
	}
	inside, err := os.ReadDir(w.readers)
	if err != nil {
		return err
	}
	if len(inside) > 1 {
		w.shared++
	}
	return w.removeMarker(marker, "read")
}

func (w *work) permit() error {
	marker := ""
	for i := 0; marker == "" && i < w.limit; i++ {
		slot := filepath.Join(w.slots, strconv.Itoa(i))
		if err := create(slot, w.self); err == nil {
			marker = slot
		} else if !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	if marker == "" {
		return w.overlap("semaphore", "as many as there are permits")
	}
	if err := w.note("enter", "semaphore"); err != nil {
		return err
	}
	pause(5000) // permits are slow to take: hold this one while others take theirs
	inUse, err := os.ReadDir(w.slots)
	if err != nil {
		return err
	}
	if len(inUse) == w.limit {
		w.full++
	}
	return w.removeMarker(marker, "semaphore")
}

func (w *work) placeMarker(marker, kind string) error {
	err := create(marker, w.self)
	if errors.Is(err, fs.ErrExist) {
		return w.overlap(kind, "the owner of "+filepath.Base(marker))
	}
	if err != nil {
		return err
	}
	return w.note("enter", kind)
}

func (w *work) removeMarker(marker, kind string) error {
	if err := w.note("leave", kind); err != nil {
		return err
	}
	return os.Remove(marker)
}

// note writes a line to the log, in one write, so that lines of several processes do not mix.
func (w *work) note(what, kind string) error {
	f, err := os.OpenFile(w.log, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%s %s %d %d\n", what, kind, os.Getpid(), time.Now().UnixNano())
	return errors.Join(err, f.Close())
}

func (w *work) overlap(kind, whom string) error {
	return fmt.Errorf("overlap: %s of %s, round %d, met %s", kind, w.self, w.rounds, whom)
}

func (w *work) read() (int, error) {
	b, err := os.ReadFile(w.counter)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(b))
}

// create creates a file that must not exist.
func create(path, content string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(content)
	return errors.Join(err, f.Close())
}

func pause(micros int) { time.Sleep(time.Duration(rand.IntN(micros)) * time.Microsecond) }
