package timed

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// untimed are the methods that are no exchanges.
var untimed = []string{"Name", "Kinds", "TTL", "Lost"}

// Every method of the contract that is an exchange is reported once, under a name of its own, also a
// method that is new. Reflection calls it on a store that there is not: the panic that follows is of
// the store.
func TestEveryExchangeIsReported(t *testing.T) {
	var ops []string
	report := func(op string, _ time.Duration, _ error) { ops = append(ops, op) }
	for _, v := range []reflect.Value{
		reflect.ValueOf(New(nil, report)), reflect.ValueOf(driver.Session(&session{nil, report})),
	} {
		contract := reflect.TypeFor[driver.Session]()
		if v.Type().Implements(reflect.TypeFor[driver.Backend]()) {
			contract = reflect.TypeFor[driver.Backend]()
		}
		for i := range contract.NumMethod() {
			name := contract.Method(i).Name
			if slices.Contains(untimed, name) || name == "Close" && contract == reflect.TypeFor[driver.Backend]() {
				continue
			}
			m := v.MethodByName(name)
			in := make([]reflect.Value, m.Type().NumIn())
			for j := range in {
				switch typ := m.Type().In(j); {
				case typ == reflect.TypeFor[context.Context]():
					in[j] = reflect.ValueOf(t.Context())
				case typ.Kind() == reflect.Slice:
					in[j] = reflect.MakeSlice(typ, 1, 1)
				default:
					in[j] = reflect.Zero(typ)
				}
			}
			before := len(ops)
			func() {
				defer func() { _ = recover() }()
				m.Call(in)
			}()
			if len(ops) != before+1 {
				t.Errorf("%s.%s: %d reports", contract, name, len(ops)-before)
			}
		}
	}
	if unique := slices.Compact(slices.Sorted(slices.Values(ops))); len(unique) != len(ops) || len(ops) < 15 {
		t.Errorf("the names are %q", ops)
	}
}

// refusing is a store that opens no session.
type refusing struct{ driver.Backend }

var errRefusing = errors.New("no")

func (refusing) Open(context.Context, driver.SessionConfig) (driver.Session, error) {
	time.Sleep(time.Millisecond)
	return nil, errRefusing
}

func TestReportOfAnError(t *testing.T) {
	var got error
	var took time.Duration
	b := New(refusing{}, func(_ string, d time.Duration, err error) { took, got = d, err })
	if s, err := b.Open(t.Context(), driver.SessionConfig{}); s != nil || !errors.Is(err, errRefusing) {
		t.Errorf("Open: %v, %v", s, err)
	}
	if !errors.Is(got, errRefusing) || took < time.Millisecond {
		t.Errorf("the report: %v after %v", got, took)
	}
}
