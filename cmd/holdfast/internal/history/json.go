package history

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/holdfast-lock/holdfast/driver"
)

var modeNames = [...]string{driver.Exclusive: "exclusive", driver.Shared: "shared", driver.Permits: "permits"}

// wire is the form of an Event in a file.
type wire struct {
	T      int64         `json:"t"`
	Kind   string        `json:"kind"`
	Client string        `json:"client"`
	ID     string        `json:"id"`
	Name   string        `json:"name"`
	Target string        `json:"target"`
	Text   string        `json:"text"`
	TTL    time.Duration `json:"ttl"`
	Token  uint64        `json:"token"`
	From   int64         `json:"from"`
	Value  int64         `json:"value"`
	N      int32         `json:"n"`
	Limit  int32         `json:"limit"`
	Mode   string        `json:"mode"`
	Result string        `json:"result"`
	Wait   bool          `json:"wait"`
}

// MarshalJSON returns e as in a file, without the newline.
func (e Event) MarshalJSON() ([]byte, error) { return e.append(nil), nil }

// append is the encoder. It neither reflects nor allocates, because recorders share the machine
// with the system under test.
func (e *Event) append(b []byte) []byte {
	b = append(b, `{"t":`...)
	b = strconv.AppendInt(b, e.T, 10)
	b = text(b, "kind", e.Kind.String())
	b = text(b, "client", e.Client)
	b = text(b, "id", e.ID)
	b = text(b, "name", e.Name)
	if e.Mode != 0 && int(e.Mode) < len(modeNames) {
		b = text(b, "mode", modeNames[e.Mode])
	}
	b = number(b, "n", int64(e.N))
	b = number(b, "limit", int64(e.Limit))
	b = number(b, "ttl", int64(e.TTL))
	if e.Wait {
		b = append(b, `,"wait":true`...)
	}
	if e.Token != 0 {
		b = append(b, `,"token":`...)
		b = strconv.AppendUint(b, e.Token, 10)
	}
	b = number(b, "from", e.From)
	b = number(b, "value", e.Value)
	b = text(b, "result", e.Result.String())
	b = text(b, "target", e.Target)
	b = text(b, "text", e.Text)
	return append(b, '}')
}

func number(b []byte, key string, v int64) []byte {
	if v == 0 {
		return b
	}
	b = append(append(append(b, `,"`...), key...), `":`...)
	return strconv.AppendInt(b, v, 10)
}

func text(b []byte, key, v string) []byte {
	if v == "" {
		return b
	}
	b = append(append(append(b, `,"`...), key...), `":`...)
	for i := range len(v) {
		if c := v[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			quoted, _ := json.Marshal(v) // of a string it cannot fail
			return append(b, quoted...)
		}
	}
	return append(append(append(b, '"'), v...), '"')
}

// UnmarshalJSON reads the output of MarshalJSON. It refuses unknown kinds and fields, because a
// partly understood history would be judged in part.
func (e *Event) UnmarshalJSON(line []byte) error {
	var w wire
	if err := Unmarshal(line, &w); err != nil {
		return err
	}
	out := Event{
		T: w.T, Client: w.Client, ID: w.ID, Name: w.Name, Target: w.Target, Text: w.Text, TTL: w.TTL,
		Token: w.Token, From: w.From, Value: w.Value, N: w.N, Limit: w.Limit, Wait: w.Wait,
	}
	var ok bool
	if out.Kind, ok = kindOf[w.Kind]; !ok {
		return fmt.Errorf("kind %q is not known", w.Kind)
	}
	if out.Mode, ok = modeOf[w.Mode]; !ok {
		return fmt.Errorf("mode %q: allowed are exclusive, shared and permits", w.Mode)
	}
	if out.Result, ok = resultOf[w.Result]; !ok {
		return fmt.Errorf("result %q: allowed are accepted, rejected and unknown", w.Result)
	}
	if err := out.check(); err != nil {
		return err
	}
	*e = out
	return nil
}

var (
	kindOf   = map[string]Kind{}
	modeOf   = map[string]driver.Mode{"": 0}
	resultOf = map[string]Result{}
)

func init() {
	for k := Kind(1); k < kinds; k++ {
		kindOf[kindNames[k]] = k
	}
	for m := driver.Exclusive; int(m) < len(modeNames); m++ {
		modeOf[modeNames[m]] = m
	}
	for r := range results {
		resultOf[resultNames[r]] = r
	}
}

// latestTime bounds times, so that sums of a few do not overflow.
const latestTime = 1 << 60

// check refuses events that no recorder can have meant.
func (e *Event) check() error {
	need := func(ok bool, what string) error {
		if ok {
			return nil
		}
		return fmt.Errorf("%s: %s", e.Kind, what)
	}
	switch {
	case e.T < 0 || e.From < 0 || e.TTL < 0 || e.T > latestTime || e.From > latestTime || e.TTL > latestTime:
		return need(false, "t, from and ttl: allowed are 0 to 2^60")
	case e.N < 0 || e.Limit < 0:
		return need(false, "n and limit: allowed are 0 and more")
	}
	switch e.Kind {
	case Acquire:
		return need(e.ID != "" && e.Mode != driver.Permits || e.ID != "" && e.Limit > 0 && e.N <= e.Limit,
			"it needs an id, and for permits a limit not below n")
	case Queued, Granted, Refused, Cancelled, Unanswered, Settled, Held, Lost, Downgrade, Release:
		return need(e.ID != "", "it needs an id")
	case Downgraded, Released:
		return need(e.ID != "" && e.Result != 0, "it needs an id and a result")
	case Renewed:
		return need(e.ID != "" || e.Token != 0, "it needs an id or a token")
	case Begin, Read, Write:
		return need(e.Result != 0, "it needs a result")
	case Fault, Healed:
		return need(e.ID != "", "it needs an id")
	case Died, Closed:
		return need(e.Client != "", "it needs a client")
	case Broken:
		return need(e.Token != 0, "it needs a token")
	case Run:
		return need(e.Target == "" || e.Target == Observed || e.Target == Unordered,
			"its target can only be "+Observed+" or "+Unordered)
	case Gauge, Leader:
		return need(e.Target != "", "it needs a target")
	}
	return nil
}
