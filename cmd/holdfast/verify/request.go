package verify

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// request is a worker's request to the Resource, in one line:
//
//	begin CLIENT ID TOKEN NAME
//	write CLIENT ID TOKEN VALUE NAME
//
// begin is the first contact: it shows the token and reads, in one step. The answer is "ok VALUE",
// or "no VALUE" for a token below the highest. An invalid line gets "bad" and the reason, and the
// connection ends.
type request struct {
	write            bool
	client, id, name string
	token            uint64
	value            int64 // write
}

// maxRequest bounds a line.
const maxRequest = driver.MaxName + 512

var errRequest = errors.New("not a request")

// parseRequest reads a line without its line end. The result keeps nothing of line.
func parseRequest(line []byte) (q request, err error) {
	field := func() []byte {
		f, rest, ok := bytes.Cut(line, []byte{' '})
		if !ok || len(f) == 0 {
			err = errRequest
		}
		line = rest
		return f
	}
	switch verb := field(); string(verb) {
	case "begin":
	case "write":
		q.write = true
	default:
		return request{}, errRequest
	}
	q.client, q.id = string(field()), string(field())
	token := field()
	var value []byte
	if q.write {
		value = field()
	}
	if q.name = string(line); err != nil || q.name == "" || len(q.name) > driver.MaxName {
		return request{}, errRequest
	}
	if q.token, err = strconv.ParseUint(string(token), 10, 64); err != nil || q.token == 0 {
		return request{}, fmt.Errorf("%w: invalid token", errRequest)
	}
	if q.write {
		if q.value, err = strconv.ParseInt(string(value), 10, 64); err != nil {
			return request{}, fmt.Errorf("%w: invalid value", errRequest)
		}
	}
	return q, nil
}

// append writes q as parseRequest reads it, with the line end.
func (q *request) append(b []byte) []byte {
	verb := "begin "
	if q.write {
		verb = "write "
	}
	b = append(b, verb...)
	b = append(append(b, q.client...), ' ')
	b = append(append(b, q.id...), ' ')
	b = append(strconv.AppendUint(b, q.token, 10), ' ')
	if q.write {
		b = append(strconv.AppendInt(b, q.value, 10), ' ')
	}
	return append(append(b, q.name...), '\n')
}

// fence is a worker's connection to the Resource, opened when needed, for one goroutine.
type fence struct {
	addr  string
	key   string
	limit time.Duration // for tests: fenceTimeout
	conn  net.Conn
	in    *bufio.Reader
	buf   []byte
}

// fenceTimeout bounds the wait for an answer. The Resource never waits for a client, so only the
// coordinator itself can be late. A worker must be able to end even then.
const fenceTimeout = 3 * time.Second

// ask is one exchange. After an error the request may or may not have arrived.
func (f *fence) ask(q *request) (value int64, ok bool, err error) {
	if f.conn == nil {
		d := net.Dialer{Timeout: cmp.Or(f.limit, fenceTimeout)}
		if f.conn, err = d.Dial("tcp", f.addr); err != nil {
			f.conn = nil
			return 0, false, fmt.Errorf("the fenced resource: %w", err)
		}
		f.in = bufio.NewReaderSize(f.conn, 256)
		if _, err = io.WriteString(f.conn, f.key+"\n"); err != nil {
			f.close()
			return 0, false, fmt.Errorf("the fenced resource: %w", err)
		}
	}
	value, ok, err = f.exchange(q)
	if err != nil {
		f.close()
		err = fmt.Errorf("the fenced resource: %w", err)
	}
	return value, ok, err
}

func (f *fence) exchange(q *request) (value int64, ok bool, err error) {
	if err := f.conn.SetDeadline(time.Now().Add(cmp.Or(f.limit, fenceTimeout))); err != nil {
		return 0, false, err
	}
	f.buf = q.append(f.buf[:0])
	if _, err := f.conn.Write(f.buf); err != nil {
		return 0, false, err
	}
	line, err := f.in.ReadSlice('\n')
	if err != nil {
		return 0, false, err
	}
	word, number, _ := bytes.Cut(bytes.TrimSuffix(line, []byte{'\n'}), []byte{' '})
	if ok = string(word) == "ok"; !ok && string(word) != "no" {
		return 0, false, fmt.Errorf("the answer %q", line)
	}
	value, err = strconv.ParseInt(string(number), 10, 64)
	return value, ok, err
}

func (f *fence) close() {
	if f.conn != nil {
		_ = f.conn.Close()
		f.conn = nil
	}
}
