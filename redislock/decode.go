package redislock

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// decodeNotYet reads the answer of acquire.lua that grants nothing. last is the name's last token.
func decodeNotYet(v Value) (r driver.Reply, last uint64, err error) {
	f := v.List
	if len(f) == 4 && f[3].Kind == Text { // of a mutex
		var h driver.Holder
		if h, err = decodeState(f[3].Text, f[2].Int); err == nil {
			r = driver.Reply{Retry: max(h.Left, time.Microsecond), Ahead: int(max(f[1].Int, 0)), Holder: &h}
		}
		return r, h.Token, err
	}
	if len(f) != 4 && len(f) != 5 {
		return r, 0, strange(v)
	}
	r = driver.Reply{Retry: micros(f[1].Int), Ahead: int(max(f[2].Int, 0))}
	if len(f) == 5 {
		h, err := decodeHolder(f[4])
		if err != nil {
			return r, 0, err
		}
		r.Holder = &h
	}
	return r, uint64(f[3].Int), nil
}

// decodeState reads the state of a held mutex at the time now; see layout.go.
func decodeState(s string, now int64) (h driver.Holder, err error) {
	bad := func() (driver.Holder, error) { return driver.Holder{}, strange(Value{Kind: Text, Text: s}) }
	if len(s) < 82 || s[0] != 'X' {
		return bad()
	}
	var n [5]int64 // token, renewed, TTL, minimum hold, granted
	for i := range n {
		if n[i], err = strconv.ParseInt(s[2+16*i:18+16*i], 10, 64); err != nil || n[i] < 0 {
			return bad()
		}
	}
	id, rest, ok := cutCounted(s[82:])
	if !ok {
		return bad()
	}
	if _, rest, ok = cutCounted(rest); !ok {
		return bad()
	}
	return driver.Holder{
		ID: id, Mode: driver.Exclusive, N: 1, Token: uint64(n[0]),
		Age: micros(now - n[4]), Left: micros(n[1] + n[2] - now), Info: rest,
	}, nil
}

// cutCounted cuts off a string after its length in two digits.
func cutCounted(s string) (head, rest string, ok bool) {
	if len(s) < 2 {
		return "", "", false
	}
	n, err := strconv.Atoi(s[:2])
	if err != nil || n < 0 || len(s) < 2+n {
		return "", "", false
	}
	return s[2 : 2+n], s[2+n:], true
}

// decodeHolder reads {id, mode, n, token, age, left, kept, info}. The age is negative if the
// server's clock was set back; nothing depends on the age.
func decodeHolder(v Value) (driver.Holder, error) {
	f := v.List
	if v.Kind != List || len(f) != 8 || f[0].Kind != Text || f[1].Kind != Text || f[7].Kind != Text {
		return driver.Holder{}, strange(v)
	}
	const age = 4
	for i, n := range f[:7] {
		if i >= 2 && (n.Kind != Int || n.Int < 0 && i != age) {
			return driver.Holder{}, strange(v)
		}
	}
	mode := modeOf(f[1].Text)
	if mode == 0 {
		return driver.Holder{}, strange(v)
	}
	id, _, _ := strings.Cut(f[0].Text, "~") // set aside: see common.lua
	n := int(f[2].Int)
	if mode == driver.Exclusive {
		n = 1 // see numberOf
	}
	return driver.Holder{
		ID: id, Mode: mode, N: n, Token: uint64(f[3].Int),
		Age: micros(f[4].Int), Left: micros(f[5].Int), Kept: f[6].Int == 1, Info: f[7].Text,
	}, nil
}

func decodeHolders(v Value) ([]driver.Holder, error) {
	if v.Kind != List {
		return nil, strange(v)
	}
	var all []driver.Holder
	for _, v := range v.List {
		h, err := decodeHolder(v)
		if err != nil {
			return nil, err
		}
		all = append(all, h)
	}
	return all, nil
}

// decodeRecord reads the answer of inspect.lua.
func decodeRecord(name string, v Value) (driver.Record, error) {
	f := v.List
	if v.Kind != List || len(f) != 7 || f[0].Kind != Text {
		return driver.Record{}, senseless(name, v)
	}
	for _, n := range f[1:5] {
		if n.Kind != Int || n.Int < 0 {
			return driver.Record{}, senseless(name, v)
		}
	}
	r := driver.Record{Name: name, Token: uint64(f[3].Int), Waiting: int(f[4].Int)}
	switch f[0].Text {
	case "F":
		return r, nil
	case "X", "S":
		r.Kind = driver.Lock
	case "P", "Ps":
		r.Kind, r.Limit, r.Set = driver.Semaphore, int(f[1].Int), f[0].Text == "Ps"
	case "L":
		r.Kind, r.Count = driver.Latch, f[2].Int
		return r, nil
	default:
		return driver.Record{}, senseless(name, v)
	}
	var err error
	if r.Holders, err = decodeHolders(f[5]); err != nil {
		return driver.Record{}, senseless(name, v)
	}
	slices.SortFunc(r.Holders, func(a, b driver.Holder) int { return cmp.Compare(a.Token, b.Token) })
	if r.Waiters, err = decodeHolders(f[6]); err != nil {
		return driver.Record{}, senseless(name, v)
	}
	return r, nil
}

// senseless is the error of a description that none of our scripts gives.
func senseless(name string, v Value) error {
	return fmt.Errorf("%w: %q: the server's description makes no sense: %.200s", driver.ErrDamaged, name, fmt.Sprint(v))
}

func micros(n int64) time.Duration {
	return time.Duration(min(max(n, 0), math.MaxInt64/int64(time.Microsecond))) * time.Microsecond
}
