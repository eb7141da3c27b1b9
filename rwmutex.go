package holdfast

import (
	"context"

	"github.com/holdfast-lock/holdfast/driver"
)

// RWMutex is a lock that one writer has at a time, or any number of readers. It is served in strict
// order of arrival. Readers that come after a waiting writer wait behind it, so writers do not
// starve; readers next to each other in the queue are let in together. Readers of one client that wait
// together have one place there, and share a grant. A Mutex of the same name is the same lock, held for
// writing. A store without read/write locks refuses it with ErrInvalid (docs/guarantees.md has the
// stores). It is a value without state and safe for concurrent use.
//
// A write lease can become a read lease: see Lease.Downgrade. The reverse is an ErrUpgrade where
// holdfast can see it: when the context of a read lease is used to take the lock for writing. With
// Reentrant, a context that holds the lock for writing can also take it for reading.
type RWMutex struct{ write, read lock }

// RWMutex returns the read/write lock of that name, without an exchange with the store. Names and
// options are as for Mutex, without Sticky.
func (c *Client) RWMutex(name string, opts ...Option) *RWMutex {
	m := &RWMutex{c.lock(name, driver.Exclusive, 1, 0, opts), c.lock(name, driver.Shared, 1, 0, opts)}
	m.write.req.ReadWrite, m.read.req.ReadWrite = true, true
	if m.write.opt.err == nil {
		m.write.opt.err = c.keeps(&m.write.req, true)
	}
	m.write.opt.notSticky("a read/write lock")
	m.read.opt.notSticky("a read/write lock")
	return m
}

// Lock waits until it holds m for writing; otherwise as Mutex.Lock.
func (m *RWMutex) Lock(ctx context.Context) (*Lease, error) { return m.part().take(ctx, "lock", true) }

// TryLock takes m for writing if it is free now and nobody waits for it, as Mutex.TryLock.
func (m *RWMutex) TryLock(ctx context.Context) (*Lease, error) {
	return m.part().take(ctx, "try lock", false)
}

// Do runs f while it holds m for writing, as Mutex.Do.
func (m *RWMutex) Do(ctx context.Context, f func(context.Context) error) error {
	return m.part().do(ctx, "lock", f)
}

// RLock waits until it holds m for reading. Each reader has a lease of its own. Readers of one client that
// share a grant have the same token (Config.Passes). It is larger than that of every writer before them, and
// smaller than that of every writer after them. Otherwise as Mutex.Lock.
func (m *RWMutex) RLock(ctx context.Context) (*Lease, error) {
	return m.reader().take(ctx, "read lock", true)
}

// TryRLock takes m for reading if no writer holds it now and nobody waits for it, as
// Mutex.TryLock.
func (m *RWMutex) TryRLock(ctx context.Context) (*Lease, error) {
	return m.reader().take(ctx, "try read lock", false)
}

// RDo runs f while it holds m for reading, as Mutex.Do.
func (m *RWMutex) RDo(ctx context.Context, f func(context.Context) error) error {
	return m.reader().do(ctx, "read lock", f)
}

// Reader returns m for reading, as a part of LockAll. m itself is the part for writing.
func (m *RWMutex) Reader() Part { return m.reader() }

func (m *RWMutex) part() *lock {
	if m == nil {
		return nil
	}
	return &m.write
}

func (m *RWMutex) reader() *lock {
	if m == nil {
		return nil
	}
	return &m.read
}
