package observe_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/drivertest"
	"github.com/holdfast-lock/holdfast/memlock"
	"github.com/holdfast-lock/holdfast/observe"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// client opens a client with a TTL of 10 s that the test's cleanup closes.
func client(t *testing.T, store driver.Backend, o *holdfast.Observer) *holdfast.Client {
	t.Helper()
	c, err := holdfast.New(t.Context(), store, &holdfast.Config{TTL: 10 * time.Second, Program: "p", Observer: o})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

func textLogger(w io.Writer, level slog.Level) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}}))
}

func TestLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		store := memlock.New()
		conn := drivertest.Faulty(store)
		c := client(t, conn, observe.Log(textLogger(&out, slog.LevelDebug), &observe.LogOptions{MinLeft: 4 * time.Second}))
		other := client(t, store, nil)
		ctx := t.Context()

		l, _ := c.Mutex("a").Lock(ctx)
		_ = l.Release()
		slow, _ := other.Mutex("x", holdfast.Note("a deploy")).Lock(ctx)
		time.AfterFunc(2*time.Second, func() { _ = slow.Release() })
		l, _ = c.Mutex("x").Lock(ctx)
		_, _ = c.Mutex("x", holdfast.WaitAtMost(time.Second)).Lock(ctx)
		_, _ = c.Mutex("x").TryLock(ctx)
		_, _ = c.Semaphore("x", 2).Acquire(ctx, 1)
		time.Sleep(time.Minute)
		_ = l.Release()
		l, _ = c.Mutex("b").Lock(ctx)
		_ = other.Break(ctx, "b", l.Token(), "stuck")
		<-l.Done()
		_ = l.Release()
		synctest.Wait()
		l, _ = c.Mutex("h").Lock(ctx)
		ticket, _, _ := l.HandOff()
		synctest.Wait()
		_ = c.Break(ctx, "b", 1, "")
		_, _ = c.Adopt(ctx, ticket)
		heal := conn.Cut()
		time.Sleep(6500 * time.Millisecond)
		heal()
		time.Sleep(2 * time.Second)
		synctest.Wait()

		got := regexp.MustCompile(` \([^()]*@[^()]*\)`).ReplaceAllString(out.String(), "")
		want := `level=DEBUG msg="holdfast: lock granted" lock=a store=memory op=lock mode=exclusive waited=0s token=1
level=DEBUG msg="holdfast: lock released" lock=a store=memory op=lock mode=exclusive token=1 held=0s
level=INFO msg="holdfast: lock granted" lock=x store=memory op=lock mode=exclusive waited=2s token=3 ahead=0 holder="p \"a deploy\" for 2s"
level=INFO msg="holdfast: a call for a lock gave up" lock=x store=memory op=lock mode=exclusive waited=1s ahead=0 holder="p for 1s" err="holdfast: lock \"x\": held by another: p for 1s"
level=DEBUG msg="holdfast: lock not free" lock=x store=memory op="try lock" mode=exclusive waited=0s holder="p for 1s" err="holdfast: try lock \"x\": held by another: p for 1s"
level=WARN msg="holdfast: a call for a lock was refused" lock=x store=memory op=acquire mode=permits waited=0s err="holdfast: acquire \"x\": in use as another kind of lock or with another limit: it is a lock"
level=INFO msg="holdfast: lock released" lock=x store=memory op=lock mode=exclusive token=3 held=1m1s
level=DEBUG msg="holdfast: lock granted" lock=b store=memory op=lock mode=exclusive waited=0s token=4
level=WARN msg="holdfast: lease lost" lock=b store=memory op=lock mode=exclusive token=4 held=333.333327ms reason=broken err="holdfast: use \"b\": lease lost (broken by p: \"stuck\")"
level=DEBUG msg="holdfast: lock granted" lock=h store=memory op=lock mode=exclusive waited=0s token=5
level=INFO msg="holdfast: lease handed off" lock=h store=memory op=lock mode=exclusive token=5 held=0s reason="handed off"
level=WARN msg="holdfast: a break of a lock failed" lock=b store=memory token=1 err="holdfast: break \"b\": no longer there: no grant has token 1"
level=DEBUG msg="holdfast: lock granted" lock=h store=memory op=adopt mode=exclusive waited=0s token=5
level=WARN msg="holdfast: a renewal failed" store=memory number=2 took=3.333333333s err="outcome unknown: the network is cut: no answer in time"
level=WARN msg="holdfast: a lease was renewed late" store=memory number=2 took=0s lease_left=2.333333334s
`
		for i, line := range strings.Split(want, "\n") {
			if lines := strings.Split(got, "\n"); i >= len(lines) || lines[i] != line {
				t.Errorf("line %d:\ngot:\n%s\nwant:\n%s", i, got, want)
				break
			}
		}
	})
}

// Lines beyond the limit are left out, counted, and never those of another text.
func TestLogIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		c := client(t, memlock.New(), observe.Log(textLogger(&out, slog.LevelDebug), &observe.LogOptions{
			Burst: 3, Interval: time.Minute}))
		pair := func() {
			l, err := c.Mutex("x").Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			_ = l.Release()
		}
		for range 10 {
			pair()
		}
		_, _ = c.Semaphore("x", 2).Acquire(t.Context(), 3)
		if n := strings.Count(out.String(), "lock granted"); n != 3 {
			t.Errorf("%d lines of a text, want 3:\n%s", n, &out)
		}
		out.Reset()
		time.Sleep(time.Minute)
		pair()
		if n := strings.Count(out.String(), "left_out=7"); n != 2 {
			t.Errorf("the number of lines left out is missing:\n%s", &out)
		}
	})
}

// All calls every Observer in order, also if one panics, and has the fields that any of them has.
func TestAll(t *testing.T) {
	var called []string
	full := func(name string, bad bool) *holdfast.Observer {
		o := &holdfast.Observer{}
		v := reflect.ValueOf(o).Elem()
		for i := range v.NumField() {
			v.Field(i).Set(reflect.MakeFunc(v.Field(i).Type(), func([]reflect.Value) []reflect.Value {
				called = append(called, name+"."+v.Type().Field(i).Name)
				if bad {
					panic(errors.New("of an observer"))
				}
				return nil
			}))
		}
		return o
	}
	all := observe.All(nil, full("a", false), full("b", true), &holdfast.Observer{}, full("c", false))
	v := reflect.ValueOf(all).Elem()
	for i := range v.NumField() {
		called = nil
		name := v.Type().Field(i).Name
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: the panic is gone", name)
				}
			}()
			in := make([]reflect.Value, v.Field(i).Type().NumIn())
			for j := range in {
				in[j] = reflect.Zero(v.Field(i).Type().In(j))
			}
			v.Field(i).Call(in)
		}()
		if got, want := fmt.Sprint(called), fmt.Sprintf("[a.%[1]s b.%[1]s c.%[1]s]", name); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if o := observe.All(nil, &holdfast.Observer{}); !reflect.ValueOf(*o).IsZero() {
		t.Error("fields that no Observer has are set")
	}
}
