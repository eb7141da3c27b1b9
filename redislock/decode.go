package redislock

import (
	"cmp"
	"slices"
	"strings"

	"github.com/holdfast-lock/holdfast/driver"
)

// decodeHolder reads {id, mode, n, token, age, left, kept, info}.
func decodeHolder(v Value) (driver.Holder, error) {
	f := v.List
	if v.Kind != List || len(f) != 8 || f[0].Kind != Text || f[1].Kind != Text || f[7].Kind != Text {
		return driver.Holder{}, strange(v)
	}
	for _, n := range f[2:7] {
		if n.Kind != Int || n.Int < 0 {
			return driver.Holder{}, strange(v)
		}
	}
	mode := modeOf(f[1].Text)
	if mode == 0 {
		return driver.Holder{}, strange(v)
	}
	id, _, _ := strings.Cut(f[0].Text, "~") // set aside, see common.lua
	return driver.Holder{
		ID: id, Mode: mode, N: int(f[2].Int), Token: uint64(f[3].Int),
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
		return driver.Record{}, strange(v)
	}
	for _, n := range f[1:5] {
		if n.Kind != Int || n.Int < 0 {
			return driver.Record{}, strange(v)
		}
	}
	r := driver.Record{Name: name, Token: uint64(f[3].Int), Waiting: int(f[4].Int)}
	switch f[0].Text {
	case "F":
		return r, nil
	case "X", "S":
		r.Kind = driver.Lock
	case "P":
		r.Kind, r.Limit = driver.Semaphore, int(f[1].Int)
	case "L":
		r.Kind, r.Count = driver.Latch, f[2].Int
		return r, nil
	default:
		return driver.Record{}, strange(v)
	}
	var err error
	if r.Holders, err = decodeHolders(f[5]); err != nil {
		return driver.Record{}, err
	}
	slices.SortFunc(r.Holders, func(a, b driver.Holder) int { return cmp.Compare(a.Token, b.Token) })
	r.Waiters, err = decodeHolders(f[6])
	return r, err
}
