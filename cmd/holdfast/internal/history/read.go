package history

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

// LineError reports which line of a history cannot be read, and why.
type LineError struct {
	File string // "" if it was not a file
	Line int    // the first is 1
	Err  error
}

// Error returns one line of text.
func (e *LineError) Error() string {
	file := e.File
	if file == "" {
		file = "history"
	}
	return fmt.Sprintf("%s:%d: %v", file, e.Line, e.Err)
}

// Unwrap returns Err.
func (e *LineError) Unwrap() error { return e.Err }

// maxLine bounds the memory for one line of a file that is no history.
const maxLine = 1 << 20

var errLong = fmt.Errorf("the line is longer than %d bytes", maxLine)

// ReadAll reads histories and merges them by time; events with the same time keep the order of the
// input. It ignores empty lines, and an incomplete last line: the process was killed while it
// wrote. Any other bad line is a *LineError.
func ReadAll(histories ...io.Reader) ([]Event, error) {
	d := &decoder{words: map[string]string{}}
	for _, r := range histories {
		if err := d.read("", r); err != nil {
			return nil, err
		}
	}
	return d.sorted(), nil
}

// Stdin as a path of ReadFiles is the standard input.
const Stdin = "-"

// ReadFiles is ReadAll for files.
func ReadFiles(paths ...string) ([]Event, error) {
	d := &decoder{words: map[string]string{}}
	for _, path := range paths {
		if path == Stdin {
			if err := d.read("standard input", os.Stdin); err != nil {
				return nil, err
			}
			continue
		}
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		err = d.read(path, f)
		_ = f.Close() // it was only read
		if err != nil {
			return nil, err
		}
	}
	return d.sorted(), nil
}

type decoder struct {
	events []Event
	words  map[string]string // each text once, since events share most of theirs
}

func (d *decoder) sorted() []Event {
	Sort(d.events)
	return d.events
}

// Sort puts events in order of time; events with the same time keep their order.
func Sort(events []Event) {
	byTime := func(a, b Event) int { return cmp.Compare(a.T, b.T) }
	if !slices.IsSortedFunc(events, byTime) {
		slices.SortStableFunc(events, byTime)
	}
}

func (d *decoder) read(file string, r io.Reader) error {
	in := bufio.NewReaderSize(r, 64<<10)
	var long []byte
	for n := 1; ; n++ {
		line, err := in.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			long = append(long[:0], line...)
			for errors.Is(err, bufio.ErrBufferFull) && len(long) <= maxLine {
				line, err = in.ReadSlice('\n')
				long = append(long, line...)
			}
			if line = long; len(line) > maxLine {
				return &LineError{file, n, errLong}
			}
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return &LineError{file, n, err}
		}
		if trimmed := bytes.TrimSpace(line); len(trimmed) > 0 {
			var e Event
			if bad := e.UnmarshalJSON(trimmed); bad == nil {
				d.keep(e)
			} else if err == nil || !errors.Is(bad, io.ErrUnexpectedEOF) {
				return &LineError{file, n, bad}
			}
		}
		if err != nil {
			return nil
		}
	}
}

func (d *decoder) keep(e Event) {
	for _, s := range []*string{&e.Client, &e.ID, &e.Name, &e.Target, &e.Text} {
		if *s == "" {
			continue
		}
		word, ok := d.words[*s]
		if !ok {
			word = *s
			d.words[word] = word
		}
		*s = word
	}
	d.events = append(d.events, e)
}
