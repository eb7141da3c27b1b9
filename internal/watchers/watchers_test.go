package watchers

import (
	"context"
	"slices"
	"testing"
)

// A watcher hears of the names with its prefix, and of "", from the call of add until it is removed.
func TestTable(t *testing.T) {
	var table Table
	var a, b []string
	table.Changed("a/0")
	removeA := table.add("a/", func(name string) { a = append(a, name) })
	removeB := table.add("", func(name string) { b = append(b, name) })
	table.Changed("a/1")
	table.Changed("a")
	table.Changed("")
	removeA()
	table.Changed("a/2")
	if n := len(table.all); n != 1 {
		t.Errorf("%d watchers", n)
	}
	removeB()
	table.Changed("a/3")
	if want := []string{"", "a/1", ""}; !slices.Equal(a, want) {
		t.Errorf("%q; want %q", a, want)
	}
	if want := []string{"", "a/1", "a", "", "a/2"}; !slices.Equal(b, want) {
		t.Errorf("%q; want %q", b, want)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err := table.Watch(ctx, "", func(string) { cancel() })
	if err == nil || len(table.all) != 0 {
		t.Errorf("Watch: %v; %d watchers", err, len(table.all))
	}
}
