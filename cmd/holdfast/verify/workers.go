package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/history"
)

// launchLimit bounds how long the workers may take to connect their clients.
const launchLimit = time.Minute

// launch starts all workers, and returns when all are ready.
func (r *run) launch(ctx context.Context) error {
	for i := range r.Processes {
		if err := r.start(i, 1); err != nil {
			return err
		}
	}
	failed := func() error {
		for _, p := range r.workers {
			if p.started() { // one that ends after that has failed in the run: see follow
				continue
			}
			select {
			case <-p.ended:
				if err := p.failure(); err != nil {
					return err
				}
				return &WorkerError{Process: p.name, External: p.external != nil}
			default:
			}
		}
		return nil
	}
	ready := r.await(ctx, launchLimit, func() bool {
		if failed() != nil {
			return true
		}
		for _, p := range r.workers {
			if !p.started() {
				return false
			}
		}
		return true
	})
	if err := failed(); err != nil {
		return err
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if !ready {
		i := slices.IndexFunc(r.workers, func(p *process) bool { return !p.started() })
		return r.notReady(r.workers[i])
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.launched = true
	for _, p := range r.workers {
		r.followers.Go(func() { r.follow(p) })
	}
	return nil
}

// notReady is the error of a worker that runs and is not ready in time. For one of holdfast the store
// has not answered. Another lock's worker may be silent for any reason.
func (r *run) notReady(p *process) error {
	text := fmt.Sprintf("worker process %s is not ready within %v", p.name, launchLimit)
	if says := p.stderr.String(); says != "" {
		text += ": " + says
	}
	if p.external != nil {
		return &WorkerError{Process: p.name, Code: -1, Text: text, External: true}
	}
	return fmt.Errorf("%w: %s", context.DeadlineExceeded, text)
}

// start starts process number i, for its run number runNumber.
func (r *run) start(i, runNumber int) error {
	p, err := r.startWorker(i, runNumber, fmt.Sprintf("p%d.%d", i+1, runNumber))
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.all = append(r.all, p)
	if runNumber == 1 { // launch follows it when all are ready
		r.workers = append(r.workers, p)
		r.mu.Unlock()
		return nil
	}
	r.workers[i] = p
	late := r.finishing
	r.followers.Go(func() { r.follow(p) })
	r.mu.Unlock()
	if late { // no other goroutine ends it
		r.killWorker(p)
	}
	return nil
}

func (r *run) startWorker(i, runNumber int, name string) (*process, error) {
	if r.External != "" && i < r.Processes-r.Beside {
		return r.startExternal(i, runNumber, name)
	}
	job := Job{
		URL: r.URL, Resource: r.resourceAt, Key: r.key, Process: name, Dir: r.dir,
		Prefix: r.prefix,
		Names:  r.Names, Clients: r.Clients, Loops: r.Loops, TTL: r.TTL, Seed: r.Seed + uint64(i)<<32 + uint64(runNumber)<<48,
		Mix: r.Mix, Pause: r.Pause, Own: r.Own,
	}
	if r.remote {
		job.Relay = r.relay.Addr
	}
	return startProcess(r.Worker(), i, runNumber, name, job, nil, r.onProgress)
}

// restarts bounds how many workers may end by themselves before the run ends.
const restarts = 5

// follow waits for the end of a worker, and starts its successor if the end was not planned.
func (r *run) follow(p *process) {
	<-p.ended
	last := p.progress()
	r.mu.Lock()
	r.past.Grants += last.Grants
	r.past.Errors += last.Errors
	r.past.LongestWaitMS = max(r.past.LongestWaitMS, last.LongestWaitMS)
	finishing := r.finishing
	r.mu.Unlock()
	err := p.failure()
	if p.endExpected() || finishing && err == nil {
		return
	}
	// No other code records its death.
	r.rec.Record(history.Event{Kind: history.Died, Client: p.name})
	worker := &WorkerError{Process: p.name, External: p.external != nil}
	if !errors.As(err, &worker) {
		err = worker
	}
	r.note("%s", worker.note())
	if finishing {
		return
	}
	r.mu.Lock()
	r.failures++
	enough := r.failures > restarts
	r.mu.Unlock()
	if !enough {
		err = r.start(p.index, p.runNumber+1)
	}
	if enough || err != nil {
		r.abort(err)
	}
}

// onProgress wakes all who wait for a change of a worker, and ends the load after enough grants. The
// first workers to be ready must not end it before the others work, too.
func (r *run) onProgress() {
	r.mu.Lock()
	close(r.change)
	r.change = make(chan struct{})
	enough := r.launched && r.totals().Grants >= r.Ops
	r.mu.Unlock()
	if enough {
		r.abort(errEnough)
	}
}

// totals sums the progress of all workers, past and present. Called with r.mu held.
func (r *run) totals() Progress {
	sum := r.past
	for _, p := range r.workers {
		select {
		case <-p.ended:
			continue // in past, or about to be
		default:
		}
		now := p.progress()
		sum.Grants += now.Grants
		sum.Errors += now.Errors
		sum.Waiting += now.Waiting
		sum.Holding += now.Holding
		sum.LongestWaitMS = max(sum.LongestWaitMS, now.LongestWaitMS)
	}
	return sum
}

// await waits until cond is true, and checks it at each report of a worker. It reports whether cond
// became true in time.
func (r *run) await(ctx context.Context, limit time.Duration, cond func() bool) bool {
	t := time.NewTimer(limit)
	defer t.Stop()
	for {
		r.mu.Lock()
		change := r.change
		r.mu.Unlock()
		if cond() {
			return true
		}
		select {
		case <-change:
		case <-ctx.Done():
			return cond()
		case <-t.C:
			return cond()
		}
	}
}

// loaded reports whether workers have reported, for a time after since, that locks were held and
// calls waited.
func (r *run) loaded(since int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	holding, waiting := 0, 0
	for _, p := range r.workers {
		if now := p.progress(); p.running() && now.T > since {
			holding += now.Holding
			waiting += now.Waiting
		}
	}
	return holding > 0 && waiting > 0
}

// finishLimit bounds how long the workers may take to end in order, plus some TTLs.
const finishLimit = 20*time.Second + settleLimit

// finish ends all workers, in order if they can.
func (r *run) finish() {
	r.mu.Lock()
	r.finishing = true
	workers := append([]*process(nil), r.workers...)
	r.mu.Unlock()
	for _, p := range workers {
		if p.running() {
			p.finish()
		} else {
			r.killWorker(p)
		}
	}
	t := time.NewTimer(finishLimit + 3*r.ttl)
	defer t.Stop()
	for _, p := range workers {
		select {
		case <-p.ended:
		case <-t.C:
			t.Reset(0) // the others have no more time either
			r.note("worker process %s did not finish within %v and was killed", p.name, finishLimit+3*r.ttl)
			r.killWorker(p)
		}
	}
	r.waitFollowers()
}

// killWorker kills a worker as a fault does. It records the death after the worker's last action.
func (r *run) killWorker(p *process) {
	select {
	case <-p.ended:
		return
	default:
	}
	p.expectEnd()
	frozen := p.freeze()
	if p.external != nil {
		p.external.die() // what it has written but nobody read was never observed
	}
	r.rec.Record(history.Event{Kind: history.Died, Client: p.name})
	p.kill()
	if !frozen { // it may have done something since
		r.rec.Record(history.Event{Kind: history.Died, Client: p.name})
	}
}
