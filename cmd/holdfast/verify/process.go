package verify

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// process is one worker process, in one of its lives.
type process struct {
	index, life int
	name        string // p3.2: the third process, in its second life
	cmd         *exec.Cmd
	in          io.WriteCloser
	ready       chan struct{} // closed when its clients are connected
	ended       chan struct{} // closed when it is no more
	err         error         // how it ended; to be read after ended
	words       tail          // its last words for people

	mu      sync.Mutex
	last    Progress
	isReady bool // ready is closed
	doomed  bool // its end is the coordinator's doing
}

// WorkerError says that a worker process ended by itself.
type WorkerError struct {
	Process string
	Code    int    // its exit code; -1: a signal's
	Text    string // its last words
}

// Error is the worker's last words, or how it ended.
func (e *WorkerError) Error() string {
	if e.Text != "" {
		return e.Text
	}
	return fmt.Sprintf("worker process %s ended by itself with code %d", e.Process, e.Code)
}

// tail keeps the end of what is written to it.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

// tailSize bounds what is kept of a worker's words.
const tailSize = 4 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if more := len(t.buf) - tailSize; more > 0 {
		t.buf = append(t.buf[:0], t.buf[more:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.buf))
}

// startProcess starts a worker and tells it its job. news is called for each line that it writes.
func startProcess(cmd *exec.Cmd, index, life int, job Job, news func()) (*process, error) {
	p := &process{index: index, life: life, name: job.Process, cmd: cmd, ready: make(chan struct{}), ended: make(chan struct{})}
	text, err := json.Marshal(job)
	if err != nil {
		return nil, err
	}
	if p.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = &p.words
	cmd.WaitDelay = time.Second
	started := make(chan error, 1)
	bound(cmd, func() {
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		p.listen(out, news)
		p.err = cmd.Wait()
		close(p.ended)
		news()
	})
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting a worker process: %w", err)
	}
	if _, err := p.in.Write(append(text, '\n')); err != nil { // it has ended, and says why
		<-p.ended
		return nil, p.failure()
	}
	return p, nil
}

// listen reads what the worker writes, until it ends.
func (p *process) listen(out io.Reader, news func()) {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var now Progress
		if err := json.Unmarshal(lines.Bytes(), &now); err != nil {
			_, _ = fmt.Fprintf(&p.words, "not understood: %.200q\n", lines.Text())
			continue
		}
		p.mu.Lock()
		p.last = now
		if now.Ready && !p.isReady {
			p.isReady = true
			close(p.ready)
		}
		p.mu.Unlock()
		news()
	}
	_, _ = io.Copy(io.Discard, out) // a line that is too long is no reason to block it
}

// progress is the last that was heard of it.
func (p *process) progress() Progress {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}

// doom says that its end is the coordinator's doing.
func (p *process) doom() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.doomed = true
}

func (p *process) isDoomed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.doomed
}

// running reports whether it has been ready and has not ended.
func (p *process) running() bool {
	select {
	case <-p.ended:
		return false
	default:
	}
	select {
	case <-p.ready:
		return true
	default:
		return false
	}
}

// failure is why it ended; nil if in order.
func (p *process) failure() error {
	if p.err == nil {
		return nil
	}
	e := &WorkerError{Process: p.name, Code: -1, Text: p.words.String()}
	var exit *exec.ExitError
	if errors.As(p.err, &exit) {
		e.Code = exit.ExitCode()
	}
	return e
}

// finish asks it to end in order.
func (p *process) finish() { _, _ = io.WriteString(p.in, "finish\n") } // who has ended needs not be asked

// freeze stops it, and returns when it does not run any more. It reports false if that cannot be told.
func (p *process) freeze() bool {
	if stop(p.cmd.Process) != nil {
		return false
	}
	for end := time.Now().Add(freezeLimit); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if is, known := frozen(p.cmd.Process.Pid); is || !known {
			return is
		}
	}
	return false
}

// freezeLimit bounds how long the kernel may take to stop a process.
const freezeLimit = 5 * time.Second

// kill ends it at once, and returns when it is no more.
func (p *process) kill() {
	p.doom()
	_ = p.cmd.Process.Kill()
	<-p.ended
	_ = p.in.Close()
}
