package main

import (
	"context"
	"errors"
	"runtime"
	"syscall"
	"time"
)

// errGaveUp: the library's own limit on waiting has passed; the contender tries again, and its wait
// goes on.
var errGaveUp = errors.New("gave up waiting")

// window is the time between two readings of all counters.
type window struct {
	start   time.Time
	sent    int64
	load    load
	cpu     time.Duration
	mallocs uint64
	bytes   uint64
}

func (b *testbed) read(ctx context.Context, w *wire) (window, error) {
	var r window
	var ms runtime.MemStats
	runtime.ReadMemStats(&ms)
	r.mallocs, r.bytes = ms.Mallocs, ms.TotalAlloc
	var err error
	switch {
	case b.zk != nil:
		r.load, err = b.zk.load(ctx)
	case b.quorum != nil:
		r.load, err = b.quorum.load(ctx)
	case b.sql != nil:
		r.load, err = b.sql.load(ctx)
	case b.server != nil:
		r.load, err = b.server.load(ctx)
	}
	if err != nil {
		return r, err
	}
	if w != nil {
		r.sent = w.commands.Load()
	}
	r.cpu = cpuTime()
	r.start = time.Now()
	return r, nil
}

// until adds to m the difference between two readings, for each of n operations.
func (r window) until(end window, n float64, m metrics) {
	took := end.start.Sub(r.start)
	m["persec"] = n / took.Seconds()
	m["sent"] = float64(end.sent-r.sent) / n
	m["calls"] = float64(end.load.commands-r.load.commands) / n
	m["bytesread"] = float64(end.load.bytes-r.load.bytes) / n
	m["cpu"] = float64(end.cpu-r.cpu) / n
	m["scripts"] = float64(end.load.scripts-r.load.scripts) / n
	m["srvcpu"] = float64(end.load.cpu-r.load.cpu) / n
	m["allocs"] = float64(end.mallocs-r.mallocs) / n
	m["bytes"] = float64(end.bytes-r.bytes) / n
}

// cpuTime returns the CPU time of this process on all cores.
func cpuTime() time.Duration {
	var ru syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &ru); err != nil {
		return 0
	}
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}
