package verify

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// externalEnv makes the test's program a worker of another lock: its value says which.
const externalEnv = "HOLDFAST_VERIFY_TEST_EXTERNAL"

// runExternal is such a worker.
func runExternal(which string) error {
	in := bufio.NewScanner(os.Stdin)
	if !in.Scan() {
		return errors.New("no first line")
	}
	var start startOrder
	if err := parseWords(in.Bytes(), &start); err != nil {
		return err
	}
	u, err := url.Parse(start.URL)
	if err != nil {
		return err
	}
	if strings.HasPrefix(which, "rlock") {
		if u.RawQuery != "" {
			return fmt.Errorf("the parameters %s are holdfast's", u.RawQuery)
		}
		return serveRLock(which, u.Host, in)
	}
	w := &testLock{broken: which == "broken", unwinds: which == "unwinds", addr: u.Host, leases: map[int64]*testLease{}}
	var hello, answer string
	switch which {
	case "sound", "broken", "unwinds":
		hello = `{"worker":"` + which + `","wait":true}`
	case "misspelt":
		hello = `{"worker":"x","token":true}`
	case "nameless":
		hello = `{"tokens":true}`
	case "ends":
		return nil
	case "silent", "stays":
		hello = `{"worker":"x"}`
	default:
		hello, answer = `{"worker":"x","wait":true}`, which
	}
	if hello != "" {
		fmt.Println(hello)
	}
	for warm := true; in.Scan(); {
		var o externalOrder
		if err := json.Unmarshal(in.Bytes(), &o); err != nil {
			return err
		}
		switch {
		case answer != "":
			fmt.Println(answer)
		case which == "stays":
			fmt.Printf(`{"id":%d,"error":"it has no lock"}`+"\n", o.ID)
		case which == "silent" && warm:
			fmt.Printf(`{"id":%d,"ok":true}`+"\n", o.ID)
			warm = o.Do != "unlock" || o.ID < warmUps
		case which == "sound" || which == "broken" || which == "unwinds":
			go w.do(o)
		}
	}
	if which == "stays" {
		time.Sleep(time.Minute)
	}
	return nil
}

// testLock is SET NX PX on one Redis. Sound: it renews, trusts its own clock, and deletes only its
// own key. Broken: it does none of this, and its lease is a quarter of the TTL. Unwinds: it is sound, and
// ends at the first order about a lock that others take, too. It first releases that lock, as programs
// do that end by an exception.
type testLock struct {
	broken  bool
	unwinds bool
	addr    string
	mu      sync.Mutex // also of the output
	leases  map[int64]*testLease
}

type testLease struct {
	name, owner string
	until       time.Time
	ttl         time.Duration
	over        chan struct{}
}

func (w *testLock) say(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fmt.Printf(format+"\n", args...)
}

func (w *testLock) do(o externalOrder) {
	var ok bool
	var err error
	switch o.Do {
	case "lock":
		ok, err = w.lock(o)
	case "held":
		w.mu.Lock()
		l := w.leases[o.ID]
		ok = w.broken || time.Now().Before(l.until)
		w.mu.Unlock()
		if w.unwinds && strings.HasSuffix(l.name, "/mutex/0") {
			w.unwind(l)
		}
	case "unlock":
		w.mu.Lock()
		l := w.leases[o.ID]
		w.mu.Unlock()
		ok, err = w.unlock(l, o.ID%3 == 0)
	}
	switch {
	case err != nil:
		w.say(`{"id":%d,"error":%q}`, o.ID, err.Error())
	case !ok && o.Do == "lock":
		w.say(`{"id":%d,"ok":false,"held":true}`, o.ID)
	default:
		w.say(`{"id":%d,"ok":%v}`, o.ID, ok)
	}
}

// unwind ends the process after two others have had the lock: the grant of the first has been read then.
func (w *testLock) unwind(l *testLease) {
	_, _ = w.unlock(l, false)
	for owners := map[string]bool{}; len(owners) < 2; time.Sleep(time.Millisecond) { // no event reports it
		const script = `return {ok = redis.call('GET',KEYS[1]) or ''}`
		if owner, err := w.redis("EVAL", script, "1", l.name); err == nil && owner != "OK" {
			owners[owner] = true
		}
	}
	os.Exit(1)
}

func (w *testLock) lock(o externalOrder) (bool, error) {
	l := &testLease{name: o.Name, owner: fmt.Sprintf("%d-%d", os.Getpid(), o.ID),
		ttl: time.Duration(o.TTLMS) * time.Millisecond, over: make(chan struct{})}
	if w.broken {
		l.ttl /= 4
	}
	for end := time.Now().Add(time.Duration(o.WaitMS) * time.Millisecond); ; time.Sleep(20 * time.Millisecond) {
		sent := time.Now()
		answer, err := w.redis("SET", l.name, l.owner, "NX", "PX", strconv.FormatInt(l.ttl.Milliseconds(), 10))
		if err != nil {
			return false, err
		}
		if answer == "OK" {
			w.mu.Lock()
			defer w.mu.Unlock()
			l.until = sent.Add(l.ttl)
			w.leases[o.ID] = l
			if !w.broken {
				go w.renew(l)
			}
			return true, nil
		}
		if !time.Now().Before(end) {
			return false, nil
		}
	}
}

func (w *testLock) renew(l *testLease) {
	for {
		select {
		case <-l.over:
			return
		case <-time.After(l.ttl / 4):
		}
		sent := time.Now()
		const script = `return redis.call('GET',KEYS[1])==ARGV[1] and redis.call('PEXPIRE',KEYS[1],ARGV[2])`
		answer, err := w.redis("EVAL", script, "1", l.name, l.owner, strconv.FormatInt(l.ttl.Milliseconds(), 10))
		w.mu.Lock()
		if err == nil && answer == "1" && sent.Before(l.until) {
			l.until = sent.Add(l.ttl)
		}
		w.mu.Unlock()
	}
}

func (w *testLock) unlock(l *testLease, repeat bool) (bool, error) {
	close(l.over)
	if w.broken {
		_, err := w.redis("DEL", l.name)
		return true, err
	}
	const script = `return redis.call('GET',KEYS[1])==ARGV[1] and redis.call('DEL',KEYS[1])`
	answer, err := w.redis("EVAL", script, "1", l.name, l.owner)
	if err == nil && repeat { // as a client library does if the first reply is lost
		answer, err = w.redis("EVAL", script, "1", l.name, l.owner)
	}
	return answer == "1", err
}

// redis is one command on a connection of its own. The answer of a nil is "".
func (w *testLock) redis(words ...string) (string, error) {
	const limit = 2 * time.Second
	c, err := net.DialTimeout("tcp", w.addr, limit)
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	if err := c.SetDeadline(time.Now().Add(limit)); err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(words))
	for _, word := range words {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(word), word)
	}
	if _, err := io.WriteString(c, b.String()); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimSpace(line)
	switch line[0] {
	case '-':
		return "", errors.New(line)
	case '$':
		return "", nil
	}
	return cmp.Or(line[1:], "OK"), nil
}
