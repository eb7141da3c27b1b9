package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
)

// arguments returns arguments for a method, by type.
func arguments(t *testing.T, f reflect.Type) (args []reflect.Value) {
	n := f.NumIn()
	if f.IsVariadic() {
		n--
	}
	for i := range n {
		var v any
		switch typ := f.In(i); typ {
		case reflect.TypeFor[context.Context]():
			v = t.Context()
		case reflect.TypeFor[string]():
			v = "x"
		case reflect.TypeFor[int]():
			v = 1
		case reflect.TypeFor[any]():
			v = "a transaction"
		case reflect.TypeFor[int64]():
			v = int64(1)
		case reflect.TypeFor[uint64]():
			v = uint64(1)
		case reflect.TypeFor[time.Duration]():
			v = time.Second
		case reflect.TypeFor[func(context.Context) error]():
			v = func(context.Context) error { t.Error("the work was done"); return nil }
		case reflect.TypeFor[func(error)]():
			v = func(error) {}
		default:
			t.Fatalf("no argument of type %v", typ)
		}
		args = append(args, reflect.ValueOf(v))
	}
	return args
}

// try calls f, and then every method of its results. It fails unless each reports in words that it
// cannot be done.
func try(t *testing.T, what string, f func() []reflect.Value) {
	t.Helper()
	said := false
	func() {
		defer func() {
			switch p := recover().(type) {
			case nil:
			case error:
				if said = invalid(p); !said {
					t.Errorf("%s panics with %v", what, p)
				}
			case string:
				if said = strings.HasPrefix(p, "holdfast: "); !said {
					t.Errorf("%s panics with %q", what, p)
				}
			default:
				t.Errorf("%s panics with %v", what, p)
			}
		}()
		for _, v := range f() {
			switch x := v.Interface().(type) {
			case error:
				if said = invalid(x); !said {
					t.Errorf("%s: %v; want ErrInvalid or ErrClosed", what, x)
				}
			case iter.Seq2[holdfast.Record, error]:
				for _, err := range x {
					said = invalid(err)
				}
			case iter.Seq2[holdfast.Event, error]:
				for _, err := range x {
					said = invalid(err)
				}
			case iter.Seq2[*holdfast.Leader, error]:
				for _, err := range x {
					said = invalid(err)
				}
			case context.Context:
				said = x.Err() != nil && invalid(context.Cause(x))
			case <-chan struct{}:
				select {
				case <-x:
					said = true
				default:
				}
			case time.Duration:
				said = x == 0
			case bool:
				said = said || !x
			case []*holdfast.Lease:
				said = x == nil
			case *holdfast.Notice:
				said = x == nil
			case []holdfast.HeldLock:
				said = x == nil
			case []holdfast.WantedLock:
				said = x == nil
			case holdfast.Health:
				said = invalid(x.Err)
			case holdfast.Part:
				_, err := holdfast.LockAll(t.Context(), x)
				said = invalid(err)
			default:
				if hasMethods(v) {
					methods(t, what, v)
					said = true
				}
			}
		}
	}()
	if !said {
		t.Errorf("%s: no error and no panic", what)
	}
}

func invalid(err error) bool {
	return errors.Is(err, holdfast.ErrInvalid) || errors.Is(err, holdfast.ErrClosed)
}

// hasMethods reports whether v has a type of holdfast, or is a sync.Locker.
func hasMethods(v reflect.Value) bool {
	return v.Kind() == reflect.Pointer && !v.IsNil() && v.Elem().Kind() == reflect.Struct && v.NumMethod() > 0 ||
		v.Kind() == reflect.Interface && !v.IsNil()
}

func methods(t *testing.T, what string, v reflect.Value) {
	t.Helper()
	for i := range v.NumMethod() {
		m := v.Method(i)
		try(t, what+"."+v.Type().Method(i).Name, func() []reflect.Value { return m.Call(arguments(t, m.Type())) })
	}
}

// Every method of a value that neither New nor a method of a Client has made reports that. It
// returns an error that is ErrInvalid or ErrClosed, or a result that means "ended", or it panics
// with a text. Reflection finds the methods, so new ones are included.
func TestZeroValues(t *testing.T) {
	for _, zero := range []any{
		&holdfast.Client{}, &holdfast.Mutex{}, &holdfast.RWMutex{}, &holdfast.Semaphore{}, &holdfast.Latch{},
		&holdfast.Election{}, &holdfast.Lease{}, &holdfast.MultiLease{},
	} {
		v := reflect.ValueOf(zero)
		methods(t, fmt.Sprintf("zero %T", zero), v)
		methods(t, fmt.Sprintf("nil %T", zero), reflect.Zero(v.Type()))
	}
	for _, b := range []driver.Backend{nil} {
		if _, err := holdfast.New(t.Context(), b, nil); !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("New of a nil Backend: %v", err)
		}
	}
	// Code may look at the error too late.
	failing := func() (err error) {
		l, err := (&holdfast.Client{}).Mutex("x").Lock(t.Context())
		defer func() { err = l.Release() }()
		return err
	}
	if err := failing(); !errors.Is(err, holdfast.ErrInvalid) {
		t.Errorf("a deferred Release of no lease: %v", err)
	}
}
