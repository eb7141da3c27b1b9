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

	"github.com/holdfast-lock/holdfast/internal/servers"
)

// process is one worker process, in one of its runs.
type process struct {
	index, runNumber int
	name             string // p3.2: the third process, in its second run
	cmd              *exec.Cmd
	in               io.WriteCloser
	ready            chan struct{}   // closed when its clients are connected
	ended            chan struct{}   // closed when the process has ended
	err              error           // how it ended; valid after ended
	external         *externalWorker // nil: the process calls Work
	out              io.Closer
	stderr           tail // the end of its standard error

	mu      sync.Mutex
	last    Progress
	isReady bool // ready is closed
	ending  bool // the coordinator ends it
}

// WorkerError reports that a worker process ended by itself.
type WorkerError struct {
	Process  string
	Code     int    // its exit code; -1: by a signal
	Text     string // the end of its standard error
	External bool   // it is one of Options.External
}

// Error returns the end of the worker's standard error, or how it ended.
func (e *WorkerError) Error() string {
	if e.Text != "" {
		return e.Text
	}
	return fmt.Sprintf("worker process %s ended by itself with code %d", e.Process, e.Code)
}

// note is the error with the name of the worker. verify has killed it, or it has ended by itself.
func (e *WorkerError) note() string {
	if e.Text == "" {
		return e.Error()
	}
	return fmt.Sprintf("worker process %s failed: %s", e.Process, e.Text)
}

// tail keeps the end of its input.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

// tailSize bounds what is kept of a worker's standard error.
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

// startProcess starts a worker and sends it its first line, a Job or a startOrder. onProgress is
// called for each change of its progress. external drives it, if it is not nil.
func startProcess(cmd *exec.Cmd, index, runNumber int, name string, first any, external *externalWorker,
	onProgress func()) (*process, error) {
	p := &process{index: index, runNumber: runNumber, name: name, cmd: cmd, external: external, ready: make(chan struct{}),
		ended: make(chan struct{})}
	listen := p.listen
	if external != nil {
		external.p, listen = p, external.listen
	}
	text, err := json.Marshal(first)
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
	p.out = out
	cmd.Stderr = &p.stderr
	cmd.WaitDelay = time.Second
	started := make(chan error, 1)
	// A worker also ends at the end of its standard input. If its parent ends while it is stopped, a
	// kernel that does not kill it continues it, because its group is then an orphan.
	ownGroup(cmd) // ^C is for the coordinator, which ends its workers
	servers.Tie(cmd, func() {
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		listen(out, onProgress)
		_, _ = io.Copy(io.Discard, out) // a line that is too long must not block the worker
		p.err = cmd.Wait()
		close(p.ended)
		onProgress()
	})
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting a worker process: %w", err)
	}
	if _, err := p.in.Write(append(text, '\n')); err != nil { // it does not read: its standard error tells why
		select {
		case <-p.ended:
		case <-time.After(outputLimit):
			p.kill()
		}
		if err := p.failure(); err != nil {
			return nil, err
		}
		return nil, &WorkerError{Process: p.name, External: external != nil}
	}
	return p, nil
}

// listen reads the worker's output, until it ends.
func (p *process) listen(out io.Reader, onProgress func()) {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var now Progress
		if err := json.Unmarshal(lines.Bytes(), &now); err != nil {
			_, _ = fmt.Fprintf(&p.stderr, "invalid line of output: %.200q\n", lines.Text())
			continue
		}
		p.set(now)
		onProgress()
	}
}

// set keeps the latest progress.
func (p *process) set(now Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = now
	if now.Ready && !p.isReady {
		p.isReady = true
		close(p.ready)
	}
}

// progress returns the latest progress.
func (p *process) progress() Progress {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}

// expectEnd marks that the coordinator ends it.
func (p *process) expectEnd() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ending = true
}

func (p *process) endExpected() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ending
}

// started reports whether the process has been ready. It may have ended since.
func (p *process) started() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.isReady
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

// failure returns why it ended; nil if in order.
func (p *process) failure() error {
	if p.err == nil {
		return nil
	}
	e := &WorkerError{Process: p.name, Code: -1, Text: p.stderr.String(), External: p.external != nil}
	var exit *exec.ExitError
	if errors.As(p.err, &exit) {
		e.Code = exit.ExitCode()
	}
	return e
}

// finish asks it to end in order.
func (p *process) finish() {
	if p.external != nil {
		go p.external.endInOrder()
		return
	}
	_, _ = io.WriteString(p.in, Finish+"\n") // fails if it has ended
}

// freeze stops it, and returns when none of its threads runs. It reports false if this system
// cannot tell.
func (p *process) freeze() bool {
	if stop(p.cmd.Process) != nil {
		return false
	}
	pid := p.cmd.Process.Pid
	for end := time.Now().Add(freezeLimit); time.Now().Before(end); time.Sleep(time.Millisecond) {
		is, known := servers.Frozen(pid)
		if !known {
			return false
		}
		if is && (p.external == nil || servers.TreeFrozen(pid)) {
			return true
		}
	}
	return false
}

// freezeLimit bounds how long the kernel may take to stop a process.
const freezeLimit = 5 * time.Second

// kill kills it, and returns when it has ended.
func (p *process) kill() {
	p.expectEnd()
	p.signalKill()
	<-p.ended
	_ = p.in.Close()
}

// outputLimit bounds how long the output of a killed worker may stay open: a process that it left
// behind may have it.
const outputLimit = 2 * time.Second

// signalKill kills it and its group.
func (p *process) signalKill() {
	select {
	case <-p.ended:
		return
	default:
	}
	killGroup(p.cmd.Process)
	time.AfterFunc(outputLimit, func() { _ = p.out.Close() })
}
