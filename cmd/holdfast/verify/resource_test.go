package verify

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/history"
	"github.com/holdfast-lock/holdfast/driver"
)

// fence is a worker's connection, with time for a busy machine.
func (s *scene) fence() *fence { return &fence{addr: s.addr, key: sceneKey, limit: time.Minute} }

// ask is an exchange that must work.
func ask(t *testing.T, f *fence, q request) (int64, bool) {
	t.Helper()
	value, ok, err := f.ask(&q)
	if err != nil {
		t.Fatal(err)
	}
	return value, ok
}

func begin(id, name string, token uint64) request {
	return request{client: "p0.1/0", id: id, name: name, token: token}
}

func write(id, name string, token uint64, value int64) request {
	return request{write: true, client: "p0.1/0", id: id, name: name, token: token, value: value}
}

func TestResource(t *testing.T) {
	s := newScene(t)
	f := s.fence()
	defer f.close()
	for i, step := range []struct {
		q     request
		value int64
		ok    bool
	}{
		{begin("a", "the name", 5), 0, true},
		{write("a", "the name", 5, 1), 1, true},
		{begin("b", "the name", 7), 1, true}, // the first contact is a read, and raises the fence
		{write("a", "the name", 5, 2), 1, false},
		{begin("c", "the name", 6), 1, false},
		{write("b", "the name", 7, 2), 2, true},
		{write("b", "the name", 7, 3), 3, true},
		{begin("a", "another", 1), 0, true},
		{write("d", "the name", 1<<64-1, -1), -1, true},
		{write("b", "the name", 7, 4), -1, false},
	} {
		if value, ok := ask(t, f, step.q); value != step.value || ok != step.ok {
			t.Errorf("step %d: %d, %v; want %d, %v", i, value, ok, step.value, step.ok)
		}
	}
	want := []Register{{"another", 0, 1}, {"the name", -1, 1<<64 - 1}}
	if got := s.resource.Final(); !slices.Equal(got, want) {
		t.Errorf("%+v; want %+v", got, want)
	}
	var steps []string
	for _, e := range s.events(t) {
		if e.Kind != history.Final {
			steps = append(steps, fmt.Sprintf("%s %s %s %d %d %s", e.Client, e.Kind, e.ID, e.Token, e.Value, e.Result))
		}
	}
	wantSteps := []string{
		"p0.1/0 begin a 5 0 accepted", "p0.1/0 read a 5 0 accepted", "p0.1/0 write a 5 1 accepted",
		"p0.1/0 begin b 7 0 accepted", "p0.1/0 read b 7 1 accepted", "p0.1/0 write a 5 2 rejected",
		"p0.1/0 begin c 6 0 rejected",
		"p0.1/0 write b 7 2 accepted", "p0.1/0 write b 7 3 accepted", "p0.1/0 begin a 1 0 accepted",
		"p0.1/0 read a 1 0 accepted",
		"p0.1/0 write d 18446744073709551615 -1 accepted", "p0.1/0 write b 7 4 rejected",
	}
	if !slices.Equal(steps, wantSteps) {
		t.Errorf("recorded: %q", steps)
	}
}

// With any order of clients, each step of a name has a time of its own, and the judge accepts the
// history.
func TestResourceManyClients(t *testing.T) {
	s := newScene(t)
	var tokens struct {
		sync.Mutex
		n uint64
	}
	var clients sync.WaitGroup
	for i := range 8 {
		clients.Go(func() {
			f := s.fence()
			defer f.close()
			for n := range 200 {
				tokens.Lock()
				tokens.n++
				token := tokens.n
				tokens.Unlock()
				id := fmt.Sprint(i, ".", n)
				q := begin(id, "one", token)
				value, ok, err := f.ask(&q)
				if err == nil && ok {
					q = write(id, "one", token, value+1)
					_, _, err = f.ask(&q)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	clients.Wait()
	events := s.events(t)
	last := map[string]int64{}
	for _, e := range events {
		if e.Kind != history.Final && e.T <= last[e.Name] {
			t.Fatalf("two steps at one time: %+v", e)
		}
		last[e.Name] = e.T
	}
	if len(events) < 8*200 {
		t.Errorf("%d events", len(events))
	}
	r := history.Check(events, history.Options{})
	for _, v := range r.Violations() {
		t.Error(v)
	}
}

// A client that dies within a request changes nothing, and blocks no other.
func TestResourceHalfRequest(t *testing.T) {
	s := newScene(t)
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	// A value of 77, or the start of 777.
	if _, err := io.WriteString(c, sceneKey+"\nbegin c a 1 x\nwrite c a 1 77 x"); err != nil {
		t.Fatal(err)
	}
	var answer [5]byte
	if _, err := io.ReadFull(c, answer[:]); err != nil || string(answer[:]) != "ok 0\n" {
		t.Fatalf("%q, %v", answer, err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	f := s.fence()
	defer f.close()
	if value, ok := ask(t, f, begin("b", "x", 2)); value != 0 || !ok {
		t.Errorf("%d, %v", value, ok)
	}
}

func TestResourceRefusesNonsense(t *testing.T) {
	s := newScene(t)
	for _, text := range []string{
		"\n", "begin\n", "read c a 1 x\n", "begin c a 0 x\n", "begin c a -1 x\n", "begin c a 1\n", "begin c a 1 \n",
		"begin  a 1 x\n", "begin c  1 x\n",
		"write c a 1 x\n", "write c a 1 v x\n", "write c a 1 1 \n",
		"begin c a 1 " + strings.Repeat("x", driver.MaxName+1) + "\n", "BEGIN c a 1 x\n",
	} {
		c, err := net.Dial("tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, sceneKey+"\n"+text); err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(c) // the server closes it
		if err != nil || !bytes.HasPrefix(answer, []byte("bad not a request")) {
			t.Errorf("%q: %q, %v", text, answer, err)
		}
		_ = c.Close()
	}
	if got := s.resource.Final(); len(got) != 0 {
		t.Errorf("%+v", got)
	}
	if err := s.rec.Err(); err != nil {
		t.Error(err)
	}
}

// Another user of the machine, who does not know the key, can take no step: it would raise the fence
// and so falsify the verdict of a run.
func TestResourceRefusesStrangers(t *testing.T) {
	s := newScene(t)
	for _, key := range []string{"", "4ke", "4key ", "4keyy", "begin c a 1 x", strings.Repeat("4key", maxRequest)} {
		c, err := net.Dial("tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetReadDeadline(time.Now().Add(time.Minute))
		_, _ = io.WriteString(c, key+"\nbegin c a 18446744073709551615 x\n") // the resource may close it at once
		if answer, _ := io.ReadAll(c); len(answer) > 0 {
			t.Errorf("key %.20q: %q", key, answer)
		}
		_ = c.Close()
	}
	if got := s.resource.Final(); len(got) != 0 {
		t.Errorf("%+v", got)
	}
}

// A closed resource is an error; the fence reconnects when the resource is back.
func TestFenceComesBack(t *testing.T) {
	s := newScene(t)
	f := s.fence()
	defer f.close()
	ask(t, f, begin("a", "x", 1))
	s.end()
	q := begin("b", "x", 2)
	if _, _, err := f.ask(&q); err == nil {
		t.Error("the closed resource answers")
	}
	again := newScene(t)
	f.addr = again.addr
	if value, ok := ask(t, f, q); value != 0 || !ok {
		t.Errorf("%d, %v", value, ok)
	}
}

func TestResourceClosedTwice(t *testing.T) {
	r := NewResource(nil, sceneKey)
	r.Close()
	r.Close()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Serve(ln); err != nil {
		t.Error(err)
	}
	if _, err := net.Dial("tcp", ln.Addr().String()); err == nil {
		t.Error("the closed resource listens")
	}
	open := NewResource(nil, sceneKey)
	if ln, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	if err := open.Serve(ln); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a listener that fails: %v", err)
	}
	open.Close()
}

// FuzzRequest: a written request reads back the same, and any line is a request or refused.
func FuzzRequest(f *testing.F) {
	for _, line := range []string{"begin p0.1/0 p0.1-0-1 7 verify/x y",
		"write c i 18446744073709551615 -9223372036854775808 n", "begin c i 07 x", "write c i 1 +1 x", "begin c i 1 ", "x",
		""} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		if bytes.IndexByte(line, '\n') >= 0 {
			return
		}
		q, err := parseRequest(line)
		if err != nil {
			if !errors.Is(err, errRequest) || q != (request{}) {
				t.Errorf("%q: %+v, %v", line, q, err)
			}
			return
		}
		if q.client == "" || q.id == "" || q.name == "" || q.token == 0 || len(q.name) > driver.MaxName ||
			strings.Contains(q.client+q.id, " ") {
			t.Errorf("%q: %+v", line, q)
		}
		again, err := parseRequest(bytes.TrimSuffix(q.append(nil), []byte{'\n'}))
		if err != nil || again != q {
			t.Errorf("%q: %+v, written and read again %+v, %v", line, q, again, err)
		}
	})
}
