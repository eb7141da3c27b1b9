package zk

import (
	"bufio"
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// fake is a server of one session that gives prepared answers.
type fake struct {
	answer func(op opcode, d *decoder, e *encoder) Code
	wrong  atomic.Bool // answer exchanges that nobody asked for
	conns  atomic.Int32
}

func (f *fake) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	go f.serve(server)
	return client, nil
}

func (f *fake) serve(c net.Conn) {
	defer func() { _ = c.Close() }()
	f.conns.Add(1)
	r := bufio.NewReader(c)
	if _, err := readPacket(r, 1024); err != nil {
		return
	}
	e := newPacket(64)
	e.int32(0)
	e.int32(2000)
	e.int64(77)
	e.buffer(make([]byte, 16))
	_, _ = c.Write(e.finish())
	for {
		b, err := readPacket(r, 1<<20)
		if err != nil {
			return
		}
		d := decoder{b: b}
		xid, op := d.int32(), opcode(d.int32())
		if f.wrong.CompareAndSwap(true, false) {
			xid += 1000
		}
		var body encoder
		code := f.answer(op, &d, &body)
		e := newPacket(64)
		e.int32(xid)
		e.int64(4711)
		e.int32(int32(code))
		e.b = append(e.b, body.b...)
		if _, err := c.Write(e.finish()); err != nil {
			return
		}
	}
}

func (f *fake) session(t *testing.T) *Session {
	t.Helper()
	s, err := Dial(t.Context(), Config{Servers: []string{"fake:1"}, Timeout: 2 * time.Second, Dialer: f.dial})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	return s
}

// A server of release 3.4 knows neither create2 nor containers, nor later requests.
func TestOldServer(t *testing.T) { synctest.Test(t, oldServer) }

func oldServer(t *testing.T) {
	f := &fake{answer: func(op opcode, d *decoder, e *encoder) Code {
		switch op {
		case opCreate:
			e.string(d.string())
		case opSync, opCloseSession:
		case opGetChildren2:
			e.strings([]string{"n"})
			e.b = append(e.b, make([]byte, 68)...)
		default:
			return ErrUnimplemented
		}
		return 0
	}}
	s := f.session(t)
	for _, mode := range []Mode{Container, Ephemeral} {
		name, stat, err := s.Create(t.Context(), "/n", []byte("x"), mode, WorldACL(PermAll))
		if err != nil || name != "/n" || stat.Czxid != 4711 || stat.DataLength != 1 {
			t.Errorf("mode %d: %q, %+v, %v", mode, name, stat, err)
		}
		if ephemeral := stat.EphemeralOwner == 77; ephemeral != (mode == Ephemeral) {
			t.Errorf("mode %d: owner %d", mode, stat.EphemeralOwner)
		}
	}
	name, stat, lists, err := s.CreateAndList(t.Context(), "/n", nil, Ephemeral, WorldACL(PermAll))
	if err != nil || name != "/n" || stat.Czxid != 4711 || len(lists[0].Names) != 1 {
		t.Errorf("%q, %+v, %+v, %v", name, stat, lists, err)
	}
	if s.Containers() {
		t.Error("this server knows no containers")
	}
}

// The session gives up a connection with an answer to no request.
func TestAnswerOutOfOrder(t *testing.T) { synctest.Test(t, answerOutOfOrder) }

func answerOutOfOrder(t *testing.T) {
	f := &fake{answer: func(opcode, *decoder, *encoder) Code { return 0 }}
	s := f.session(t)
	f.wrong.Store(true)
	if err := s.Sync(t.Context(), "/"); !errors.Is(err, ErrConnectionLoss) {
		t.Errorf("%v; want a lost connection", err)
	}
	if err := s.Sync(t.Context(), "/"); err != nil || f.conns.Load() != 2 {
		t.Errorf("after a reconnect: %v, with %d connections", err, f.conns.Load())
	}
}

// A refusal that concerns the server or the session proves nothing.
func TestRefusalIsNoProof(t *testing.T) { synctest.Test(t, refusalIsNoProof) }

func refusalIsNoProof(t *testing.T) {
	var code atomic.Int32
	f := &fake{answer: func(op opcode, _ *decoder, _ *encoder) Code {
		if op == opCloseSession {
			return 0
		}
		return Code(code.Load())
	}}
	s := f.session(t)
	code.Store(int32(ErrThrottled))
	select {
	case <-s.Lost():
		if left := s.Left(); left > 0 || !errors.Is(s.Err(), ErrSessionExpired) {
			t.Errorf("lost when %v was left: %v", left, s.Err())
		}
	case <-time.After(10 * time.Second):
		t.Error("a session whose requests are all refused does not end")
	}
}
