// Package watchers keeps who watches the names of one store in one process. Stores use it to
// implement driver.Watcher.
package watchers

import (
	"context"
	"strings"
	"sync"
)

// Table is a set of watchers. The zero value is ready. It is safe for concurrent use.
type Table struct {
	mu  sync.RWMutex
	all map[*watcher]struct{}
}

type watcher struct {
	prefix  string
	changed func(name string)
}

// Watch calls changed with "" at once, and then with what is given to Changed, until ctx ends.
func (t *Table) Watch(ctx context.Context, prefix string, changed func(name string)) error {
	defer t.add(prefix, changed)()
	<-ctx.Done()
	return ctx.Err()
}

// add adds a watcher and calls changed with "". When remove has returned, changed is not called
// any more.
func (t *Table) add(prefix string, changed func(name string)) (remove func()) {
	w := &watcher{prefix, changed}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all == nil {
		t.all = map[*watcher]struct{}{}
	}
	t.all[w] = struct{}{}
	changed("")
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.all, w)
	}
}

// Changed tells the watchers of a name that its record may have changed; "": all watchers.
func (t *Table) Changed(name string) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for w := range t.all {
		if name == "" || strings.HasPrefix(name, w.prefix) {
			w.changed(name)
		}
	}
}

// Until returns a function that calls changed until stop has returned.
func Until(changed func(name string)) (call func(name string), stop func()) {
	var mu sync.RWMutex
	stopped := false
	call = func(name string) {
		mu.RLock()
		defer mu.RUnlock()
		if !stopped {
			changed(name)
		}
	}
	stop = func() {
		mu.Lock()
		defer mu.Unlock()
		stopped = true
	}
	return call, stop
}
