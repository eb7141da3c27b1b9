package history

import (
	"io"
	"os"
	"slices"
	"sync"
)

// Recorder writes events to a file or another writer. It writes each event at once, in one Write
// call, so a killed process leaves whole lines. Every process has its own Recorder; [ReadFiles]
// merges the files. It is safe for concurrent use. The zero Recorder and a nil one record nothing.
type Recorder struct {
	// Clock stamps events that have no T. Nil: [Now]. It is set before the first event.
	Clock func() int64

	// Process is put before the Client of each event, with a slash between the two if both are
	// there. Died, Broken, Fault, Healed and Leader are about others and stay as they are. It is
	// set before the first event.
	Process string

	mu  sync.Mutex
	w   io.Writer
	buf []byte
	err error
}

// NewRecorder returns a Recorder that writes to w. If w buffers, a killed process loses the end of
// its history.
func NewRecorder(w io.Writer) *Recorder { return &Recorder{w: w} }

// Create returns a Recorder that appends to the file at path, which it creates if missing.
func Create(path string) (*Recorder, error) {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	return NewRecorder(f), nil
}

// Record writes e and returns its T. An event without a T gets the current time. Err and Close
// return the first error; after it nothing more is written, so that the history has no gap.
func (r *Recorder) Record(e Event) int64 {
	if r == nil {
		return 0
	}
	if e.T == 0 {
		e.T = r.now()
	}
	if r.Process != "" && !slices.Contains(ofOthers, e.Kind) {
		if e.Client != "" {
			e.Client = "/" + e.Client
		}
		e.Client = r.Process + e.Client
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.w == nil || r.err != nil {
		return e.T
	}
	if r.err = e.check(); r.err != nil {
		return e.T
	}
	r.buf = append(e.append(r.buf[:0]), '\n')
	_, r.err = r.w.Write(r.buf)
	return e.T
}

var ofOthers = []Kind{Died, Broken, Fault, Healed, Leader}

func (r *Recorder) now() int64 {
	if r.Clock != nil {
		return r.Clock()
	}
	return Now()
}

// Err returns the first error: of a Write, or of an invalid event.
func (r *Recorder) Err() error {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// Close closes the writer if it can be closed, and returns the first error.
func (r *Recorder) Close() error {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if c, ok := r.w.(io.Closer); ok {
		if err := c.Close(); r.err == nil {
			r.err = err
		}
	}
	r.w = nil
	return r.err
}
