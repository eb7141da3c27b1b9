package redislock_test

import (
	"errors"
	"testing"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/redislock/redisson"
)

// TestRedissonOddNumbers: a string that Redis cannot count with is no semaphore and no latch of
// Redisson, although Lua reads it as a number. It stays as it is, and no record says that it is ours.
func TestRedissonOddNumbers(t *testing.T) {
	t.Parallel()
	m, s, b, _ := oneName(t)
	plain, _ := m.open(&redisson.Config{PlainSemaphores: true}, long)
	for _, odd := range []string{"1.5", "0x10", " 7", "1e3", "nan", "inf", "+5", "007", "-0", "9999999999999999999"} {
		name := newID()
		m.do("SET", name, odd)
		for what, ask := range map[string]func() error{
			"mutex":     func() error { _, err := s.Acquire(t.Context(), exclusive(name)); return err },
			"permits":   func() error { _, err := s.Acquire(t.Context(), permits(name, 1, 0)); return err },
			"plain":     func() error { _, err := plain.Acquire(t.Context(), permits(name, 1, 0)); return err },
			"limit":     func() error { return b.SetLimit(t.Context(), name, 3) },
			"no limit":  func() error { return b.SetLimit(t.Context(), name, 0) },
			"latch":     func() error { _, err := s.SetCount(t.Context(), name, 2); return err },
			"countdown": func() error { _, err := s.CountDown(t.Context(), name, "one"); return err },
		} {
			if err := ask(); !errors.Is(err, driver.ErrDamaged) {
				t.Errorf("%q, %s: %v; want ErrDamaged", odd, what, err)
			}
			if v, err := m.do("GET", name).ToString(); v != odd || err != nil {
				t.Errorf("%q, %s: the key has %q, %v", odd, what, v, err)
				m.do("SET", name, odd)
			}
			if keys, err := m.do("KEYS", "hf:*:l:"+name).AsStrSlice(); err != nil || len(keys) > 0 {
				t.Errorf("%q, %s: %v, %v; want no record", odd, what, keys, err)
				m.do(append([]string{"DEL"}, keys...)...)
			}
		}
	}
}

// TestRedissonNegative: a number below zero is a semaphore, never a latch, and damages no record.
func TestRedissonNegative(t *testing.T) {
	t.Parallel()
	m, s, _, name := oneName(t)
	m.do("SET", name, "-5")
	for range 2 {
		if _, err := s.SetCount(t.Context(), name, 2); !errors.Is(err, driver.ErrKind) {
			t.Errorf("SetCount: %v; want ErrKind", err)
		}
		if _, err := s.CountDown(t.Context(), name, "one"); !errors.Is(err, driver.ErrKind) {
			t.Errorf("CountDown: %v; want ErrKind", err)
		}
	}
	m.do("SET", name, "2")
	if n, err := s.CountDown(t.Context(), name, "one"); n != 1 || err != nil {
		t.Fatalf("CountDown: %d, %v", n, err)
	}
	m.do("DECRBY", name, "6") // another program
	for _, id := range []string{"two", "three"} {
		if n, err := s.CountDown(t.Context(), name, id); n != 0 || err != nil {
			t.Errorf("CountDown: %d, %v", n, err)
		}
	}
}
