package history_test

import (
	"bytes"
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/history"
)

// Two clients record their observations. The store has granted both the lock at the same time.
func Example() {
	const ms = int64(time.Millisecond)
	var file bytes.Buffer // history.Create makes a file
	r := history.NewRecorder(&file)
	r.Record(history.Event{Kind: history.Run, Text: "an example", TTL: time.Second, T: 1})
	for i, client := range []string{"ann", "bob"} {
		e := history.Event{Client: client, ID: fmt.Sprint(client, "-1"), Name: "report"}
		at := func(t int64, kind history.Kind) history.Event { e.T, e.Kind = t*ms, kind; return e }
		start := int64(10 + 5*i)
		r.Record(at(start, history.Acquire))
		granted := at(start+2, history.Granted)
		granted.Token = uint64(41 + i)
		r.Record(granted)
		r.Record(at(start+20, history.Release))
		released := at(start+22, history.Released)
		released.Result = history.Accepted
		r.Record(released)
	}
	if err := r.Close(); err != nil {
		panic(err)
	}

	events, err := history.ReadAll(&file)
	if err != nil {
		panic(err)
	}
	report := history.Check(events, history.Options{})
	fmt.Println(report.Outcome)
	for _, v := range report.Violations() {
		fmt.Println(v)
		for _, e := range v.Events {
			fmt.Println(e.T/ms, e.Client, e.Kind)
		}
	}
	// Output:
	// violation
	// S1 "report": the lock was granted inside another's lease
	// 10 ann acquire
	// 12 ann granted
	// 15 bob acquire
	// 17 bob granted
	// 30 ann release
	// 32 ann released
	// 35 bob release
	// 37 bob released
}
