package verify

import (
	"bufio"
	"cmp"
	"errors"
	"net"
	"slices"
	"strconv"
	"sync"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/history"
)

// Resource is the fenced resource: a number for each name. It remembers the highest token that it
// has seen of each name, reads included, and refuses lower ones. It serves [request] over TCP, and
// records each step in a history, even if the client has died meanwhile. The first line of each
// connection is the key: other users of this machine could falsify the verdict without it.
type Resource struct {
	rec *history.Recorder
	key string

	mu    sync.Mutex
	names map[string]*register
	conns map[net.Conn]struct{}
	lns   map[net.Listener]struct{}
	done  bool
	wg    sync.WaitGroup
}

// register is the number of one name.
type register struct {
	mu      sync.Mutex
	highest uint64
	value   int64
	last    int64 // when the last step was recorded
}

// Register is the state of one name.
type Register struct {
	Name  string
	Value int64
	Token uint64 // the highest accepted
}

// NewResource returns a Resource that records its steps with rec, for clients that know the key. The
// caller closes rec.
func NewResource(rec *history.Recorder, key string) *Resource {
	return &Resource{rec: rec, key: key, names: map[string]*register{}, conns: map[net.Conn]struct{}{},
		lns: map[net.Listener]struct{}{}}
}

// Serve serves the connections of ln until Close, and returns nil then. It closes ln.
func (r *Resource) Serve(ln net.Listener) error {
	if !r.enter(func() { r.lns[ln] = struct{}{} }) {
		return ln.Close()
	}
	defer r.wg.Done()
	for {
		c, err := ln.Accept()
		if err != nil {
			r.mu.Lock()
			defer r.mu.Unlock()
			delete(r.lns, ln)
			if r.done {
				return nil
			}
			return errors.Join(err, ln.Close())
		}
		if !r.enter(func() { r.conns[c] = struct{}{} }) {
			_ = c.Close()
			continue // Accept fails next
		}
		go func() {
			defer r.wg.Done()
			r.answer(c)
			_ = c.Close()
			r.mu.Lock()
			delete(r.conns, c)
			r.mu.Unlock()
		}()
	}
}

// enter counts something that Close waits for, and calls note, unless the Resource is closed.
func (r *Resource) enter(note func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done {
		return false
	}
	note()
	r.wg.Add(1)
	return true
}

// Close ends Serve and all connections. When it returns, earlier requests have been recorded. It
// may be called more than once.
func (r *Resource) Close() {
	r.mu.Lock()
	r.done = true
	for ln := range r.lns {
		_ = ln.Close()
	}
	for c := range r.conns {
		_ = c.Close()
	}
	r.mu.Unlock()
	r.wg.Wait()
}

// Final returns the state of all names, sorted.
func (r *Resource) Final() []Register {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []Register
	for name, reg := range r.names {
		reg.mu.Lock()
		list = append(list, Register{name, reg.value, reg.highest})
		reg.mu.Unlock()
	}
	slices.SortFunc(list, func(a, b Register) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// answer serves one connection until it ends or sends an invalid line. A line without its end is
// incomplete, and is ignored.
func (r *Resource) answer(c net.Conn) {
	in := bufio.NewReaderSize(c, maxRequest)
	if line, err := in.ReadSlice('\n'); err != nil || string(line[:len(line)-1]) != r.key {
		return
	}
	out := make([]byte, 0, 64)
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return
		}
		q, err := parseRequest(line[:len(line)-1])
		if err != nil {
			_, _ = c.Write(append(append(append(out[:0], "bad "...), err.Error()...), '\n'))
			return
		}
		value, ok := r.step(&q)
		out = append(out[:0], "no "...)
		if ok {
			out = append(out[:0], "ok "...)
		}
		if _, err := c.Write(append(strconv.AppendInt(out, value, 10), '\n')); err != nil {
			return
		}
	}
}

// step executes a request in one step, and returns the value then and whether the token was
// accepted.
func (r *Resource) step(q *request) (value int64, ok bool) {
	r.mu.Lock()
	reg := r.names[q.name]
	if reg == nil {
		reg = &register{}
		r.names[q.name] = reg
	}
	r.mu.Unlock()

	reg.mu.Lock()
	if ok = q.token >= reg.highest; ok {
		reg.highest = q.token
		if q.write {
			reg.value = q.value
		}
	}
	value = reg.value
	// No two steps of a name have the same time. The record is written after the step: a slow disk
	// blocks no other client.
	at := max(history.Now(), reg.last+1)
	reg.last = at + 1
	reg.mu.Unlock()

	e := history.Event{T: at, Kind: history.Begin, Client: q.client, ID: q.id, Name: q.name, Token: q.token,
		Result: history.Accepted}
	if !ok {
		e.Result = history.Rejected
	}
	if q.write {
		e.Kind, e.Value = history.Write, value
		if !ok {
			e.Value = q.value
		}
		r.rec.Record(e)
		return value, ok
	}
	r.rec.Record(e)
	if ok {
		e.T, e.Kind, e.Value = at+1, history.Read, value
		r.rec.Record(e)
	}
	return value, ok
}
