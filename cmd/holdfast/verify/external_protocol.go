package verify

import (
	"errors"
	"fmt"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/history"
)

// The protocol of external workers, in lines of JSON; docs/verify.md describes it. The worker first
// reads one startOrder and answers with one hello. Then it reads orders, and writes one reply to
// each; orders of different attempts overlap. It ends at the end of its input.

// startOrder is the first line of a worker's input.
type startOrder struct {
	Do    string `json:"do"`  // start
	URL   string `json:"url"` // of the store, through the relay
	TTLMS int64  `json:"ttl_ms"`
}

// hello is the first line of a worker's output: it is ready. The report names what the lock lacks.
type hello struct {
	Worker string `json:"worker"` // the name of the lock, for people
	Tokens bool   `json:"tokens"` // each grant has a fencing token
	Queue  bool   `json:"queue"`  // grants are in order of arrival; the worker reports places
	Wait   bool   `json:"wait"`   // lock can wait
}

// order is a line of a worker's input about one attempt.
type externalOrder struct {
	Do     string `json:"do"` // lock, held, unlock
	ID     int64  `json:"id"`
	Name   string `json:"name,omitempty"` // lock
	TTLMS  int64  `json:"ttl_ms,omitempty"`
	WaitMS int64  `json:"wait_ms,omitempty"` // 0: it does not wait
}

// reply is the answer to an order, or an unasked report: the fields after Error.
type reply struct {
	ID     *int64 `json:"id"`
	OK     *bool  `json:"ok"`
	Held   bool   `json:"held"`  // lock: it was not free, and nothing was taken
	Token  uint64 `json:"token"` // lock
	Error  string `json:"error"` // the outcome is unknown
	Lost   bool   `json:"lost"`
	Queued bool   `json:"queued"`

	t int64 // when it had been read
}

// unasked reports whether it is no answer to an order.
func (a *reply) unasked() bool { return a.Lost || a.Queued }

func (a *reply) ok() bool { return a.OK != nil && *a.OK }

var errWords = errors.New("not a line of the protocol")

// parseWords reads one line of a worker.
func parseWords(line []byte, to any) error {
	if err := history.Unmarshal(line, to); err != nil {
		return fmt.Errorf("%w: %w", errWords, err)
	}
	return nil
}

func parseHello(line []byte) (h hello, err error) {
	if err = parseWords(line, &h); err == nil && h.Worker == "" {
		err = fmt.Errorf("%w: the first line needs the field worker, the name of the lock", errWords)
	}
	return h, err
}

func parseReply(line []byte) (a reply, err error) {
	if err = parseWords(line, &a); err != nil {
		return a, err
	}
	n := 0
	for _, is := range []bool{a.OK != nil, a.Error != "", a.Lost, a.Queued} {
		if is {
			n++
		}
	}
	switch {
	case a.ID == nil:
		err = fmt.Errorf("%w: it has no id", errWords)
	case n != 1:
		err = fmt.Errorf("%w: it needs one of ok, error, lost and queued", errWords)
	case a.Token != 0 && !a.ok():
		err = fmt.Errorf("%w: a token without a grant", errWords)
	case a.Held && (a.OK == nil || a.ok()):
		err = fmt.Errorf(`%w: "held":true belongs to "ok":false`, errWords)
	}
	return a, err
}
