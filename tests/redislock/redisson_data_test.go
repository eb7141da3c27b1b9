package redislock_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/driver"
)

// TestRedissonOthersData: a key that no lock of Redisson has is left as it is, whatever the request wants,
// and the error tells that it may be another program's.
func TestRedissonOthersData(t *testing.T) {
	t.Parallel()
	m, s, b, _ := oneName(t)
	for kind, set := range map[string][]string{
		"a hash with other fields":   {"HSET", "", "name", "Ann"},
		"a string that is no number": {"SET", "", "hello"},
		"a list":                     {"RPUSH", "", "hello"},
	} {
		name := newID()
		set[1] = name
		if err := m.do(set...).Error(); err != nil {
			t.Fatal(err)
		}
		before, err := m.do("DUMP", name).ToString()
		if err != nil {
			t.Fatal(err)
		}
		acquire := func(r *driver.Request) func() error {
			return func() error { _, err := s.Acquire(t.Context(), r); return err }
		}
		for what, ask := range map[string]func() error{
			"mutex":     acquire(exclusive(name)),
			"writer":    acquire(writer(name)),
			"reader":    acquire(reader(name)),
			"permits":   acquire(permits(name, 1, 3)),
			"limit":     func() error { return b.SetLimit(t.Context(), name, 3) },
			"no limit":  func() error { return b.SetLimit(t.Context(), name, 0) },
			"latch":     func() error { _, err := s.SetCount(t.Context(), name, 2); return err },
			"countdown": func() error { _, err := s.CountDown(t.Context(), name, "one"); return err },
		} {
			if err := ask(); !errors.Is(err, driver.ErrDamaged) ||
				!strings.Contains(err.Error(), "it is no lock of Redisson, but "+kind) {
				t.Errorf("%s, %s: %v; want ErrDamaged", kind, what, err)
			}
			after, err := m.do("DUMP", name).ToString()
			if err != nil || after != before || m.number("PTTL", name) != -1 {
				t.Fatalf("%s, %s: the key has changed; %v", kind, what, err)
			}
		}
		if keys, err := m.do("KEYS", "hf:*:l:"+name).AsStrSlice(); err != nil || len(keys) > 0 {
			t.Errorf("%s: %v, %v; want no record", kind, keys, err)
		}
	}
}

// TestRedissonOtherLimit: a request that is refused for its limit does not tell that the name is a
// semaphore, so SetLimit still leaves the number alone.
func TestRedissonOtherLimit(t *testing.T) {
	t.Parallel()
	m, s, b, name := oneName(t)
	m.do("SET", name, "3")
	for _, limit := range []int{2, 4} {
		if _, err := s.Acquire(t.Context(), permits(name, 1, limit)); !errors.Is(err, driver.ErrKind) ||
			!strings.Contains(err.Error(), "a semaphore of 3") {
			t.Errorf("limit %d: %v; want ErrKind", limit, err)
		}
	}
	for _, limit := range []int{0, 5} {
		if err := b.SetLimit(t.Context(), name, limit); !errors.Is(err, driver.ErrKind) {
			t.Errorf("SetLimit %d: %v; want ErrKind", limit, err)
		}
	}
	if n := m.number("GET", name); n != 3 {
		t.Errorf("%d are left of 3", n)
	}
	if keys, err := m.do("KEYS", "hf:*:l:"+name).AsStrSlice(); err != nil || len(keys) > 0 {
		t.Errorf("%v, %v; want no record", keys, err)
	}
}
