package zk

import (
	"context"
	"errors"
	"slices"
)

// Mode is the kind of node to create.
type Mode int32

// The modes. ZooKeeper appends a number of ten digits to the names of sequential nodes, from the
// parent's count of creations. The count starts again when the parent is created again, and is
// unusable from 2147483647 on. The servers delete a container some time after its last child;
// servers that do not know containers create a persistent node.
const (
	Persistent           Mode = 0
	Ephemeral            Mode = 1
	PersistentSequential Mode = 2
	EphemeralSequential  Mode = 3
	Container            Mode = 4
)

// AnyVersion, given as a version, matches every version.
const AnyVersion int32 = -1

// Create creates a node, and returns its path with the sequence number. Servers before 3.5 send no
// Stat: then only Czxid, Mzxid, Pzxid, EphemeralOwner and DataLength are set. Errors:
// ErrNodeExists, ErrNoNode (no parent), ErrNoAuth, ErrInvalidACL, ErrEphemeralParent.
func (s *Session) Create(ctx context.Context, path string, data []byte, mode Mode, acl []ACL) (string, Stat, error) {
	if s.isOld() {
		return s.createOld(ctx, path, data, mode, acl)
	}
	c := s.createCall(createOp(mode), path, data, mode, acl)
	d, err := s.do(ctx, "create", path, c)
	if errors.Is(err, ErrUnimplemented) {
		s.becomeOld()
		return s.createOld(ctx, path, data, mode, acl)
	}
	if err != nil {
		return "", Stat{}, err
	}
	return s.created(&d, path)
}

func createOp(mode Mode) opcode {
	if mode == Container {
		return opCreateContainer
	}
	return opCreate2
}

func (s *Session) createCall(op opcode, path string, data []byte, mode Mode, acl []ACL) *call {
	c := pathCall(op, path, len(data)+64)
	encodeCreate(&c.e, data, mode, acl)
	return c
}

// encodeCreate appends the part of a create request after the path.
func encodeCreate(e *encoder, data []byte, mode Mode, acl []ACL) {
	e.buffer(data)
	e.acls(acl)
	e.int32(int32(mode))
}

func (s *Session) created(d *decoder, path string) (string, Stat, error) {
	name, stat := d.string(), d.stat()
	if d.err != nil {
		return "", Stat{}, &opError{"create", path, d.err}
	}
	return name, stat, nil
}

// createOld is Create for servers that know neither containers nor create2.
func (s *Session) createOld(ctx context.Context, path string, data []byte, mode Mode, acl []ACL) (string, Stat, error) {
	if mode == Container {
		mode = Persistent
	}
	c := s.createCall(opCreate, path, data, mode, acl)
	d, err := s.do(ctx, "create", path, c)
	if err != nil {
		return "", Stat{}, err
	}
	name := d.string()
	if d.err != nil {
		return "", Stat{}, &opError{"create", path, d.err}
	}
	return name, s.bareStat(c.hdr.zxid, data, mode), nil
}

// Probe finds out whether the servers are older than 3.5, and the session remembers the result.
// Such servers know neither containers nor create2 nor the removal of a watch.
func (s *Session) Probe(ctx context.Context) (old bool, err error) {
	c := pathCall(opRemoveWatches, "/", 4)
	c.e.int32(3) // of a path without a watch: nothing happens
	_, err = s.do(ctx, "probe", "/", c)
	switch {
	case errors.Is(err, ErrUnimplemented):
		s.becomeOld()
		// Old servers close the connection now.
		for err = ErrConnectionLoss; errors.Is(err, ErrConnectionLoss) && ctx.Err() == nil; {
			err = s.Sync(ctx, "/")
		}
		return true, err
	case errors.Is(err, ErrConnectionLoss), errors.Is(err, ErrNotSent):
		return false, err
	}
	return false, nil // ErrNoWatcher
}

// Containers reports whether the servers know containers, as far as the session has tried them.
func (s *Session) Containers() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.old
}

// bareStat returns what is known of a node that transaction zxid created.
func (s *Session) bareStat(zxid int64, data []byte, mode Mode) Stat {
	stat := Stat{Czxid: zxid, Mzxid: zxid, Pzxid: zxid, DataLength: int32(len(data))}
	if mode == Ephemeral || mode == EphemeralSequential {
		stat.EphemeralOwner = s.ID()
	}
	return stat
}

// Delete deletes a node that has this version. Errors: ErrNoNode, ErrBadVersion, ErrNotEmpty,
// ErrNoAuth.
func (s *Session) Delete(ctx context.Context, path string, version int32) error {
	c := pathCall(opDelete, path, 4)
	c.e.int32(version)
	_, err := s.do(ctx, "delete", path, c)
	return err
}

// Set sets a node's data if it has this version. Errors: ErrNoNode, ErrBadVersion, ErrNoAuth.
func (s *Session) Set(ctx context.Context, path string, data []byte, version int32) (Stat, error) {
	c := pathCall(opSetData, path, len(data)+8)
	c.e.buffer(data)
	c.e.int32(version)
	d, err := s.do(ctx, "set", path, c)
	return statOf(&d, "set", path, err)
}

func statOf(d *decoder, what, path string, err error) (Stat, error) {
	if err != nil {
		return Stat{}, err
	}
	stat := d.stat()
	if d.err != nil {
		return Stat{}, &opError{what, path, d.err}
	}
	return stat, nil
}

// Exists returns the metadata of a node at the connected server, which may lag behind others.
// ErrNoNode: there is no node.
func (s *Session) Exists(ctx context.Context, path string) (Stat, error) {
	stat, _, err := s.ExistsW(ctx, path, nil)
	return stat, err
}

// ExistsW is Exists, and if f is not nil, sets a one-shot watch: on the node's deletion or change
// of data, or if the error is ErrNoNode, on its creation.
func (s *Session) ExistsW(ctx context.Context, path string, f func(Event)) (Stat, *Watch, error) {
	c := s.readCall(opExists, path, watchExist, f)
	d, err := s.do(ctx, "exists", path, c)
	if err != nil && (c.watch == nil || !errors.Is(err, ErrNoNode)) {
		return Stat{}, nil, err
	}
	stat, err := statOf(&d, "exists", path, err)
	return stat, c.watch, err
}

// readCall returns a request that reads path and may set a watch.
func (s *Session) readCall(op opcode, path string, kind watchKind, f func(Event)) *call {
	c := pathCall(op, path, 1)
	c.e.bool(f != nil)
	if f != nil {
		c.watch = &Watch{s: s, kind: kind, path: path, f: f}
	}
	return c
}

// Get returns a node's data as the connected server knows it. Errors: ErrNoNode, ErrNoAuth.
func (s *Session) Get(ctx context.Context, path string) ([]byte, Stat, error) {
	data, stat, _, err := s.GetW(ctx, path, nil)
	return data, stat, err
}

// GetW is Get. If f is not nil and there is no error, it also sets a one-shot watch on the node's
// deletion or change of data.
func (s *Session) GetW(ctx context.Context, path string, f func(Event)) ([]byte, Stat, *Watch, error) {
	c := s.readCall(opGetData, path, watchData, f)
	d, err := s.do(ctx, "get", path, c)
	if err != nil {
		return nil, Stat{}, nil, err
	}
	data := slices.Clone(d.buffer())
	stat, err := statOf(&d, "get", path, nil)
	return data, stat, c.watch, err
}

// Children returns the names of a node's children, in no order, as the connected server knows them.
// Errors: ErrNoNode, ErrNoAuth, ErrTooLarge.
func (s *Session) Children(ctx context.Context, path string) ([]string, Stat, error) {
	names, stat, _, err := s.ChildrenW(ctx, path, nil)
	return names, stat, err
}

// ChildrenW is Children. If f is not nil and there is no error, it also sets a one-shot watch on
// the node's deletion and its list of children.
func (s *Session) ChildrenW(ctx context.Context, path string, f func(Event)) ([]string, Stat, *Watch, error) {
	c := s.childrenCall(path, f)
	d, err := s.do(ctx, "list", path, c)
	if err != nil {
		return nil, Stat{}, nil, err
	}
	names := d.strings()
	stat, err := statOf(&d, "list", path, nil)
	return names, stat, c.watch, err
}

func (s *Session) childrenCall(path string, f func(Event)) *call {
	return s.readCall(opGetChildren2, path, watchChild, f)
}

// ACL returns a node's ACL as the connected server knows it. Servers show password hashes only to
// users who may change the ACL. Errors: ErrNoNode, ErrNoAuth.
func (s *Session) ACL(ctx context.Context, path string) ([]ACL, error) {
	d, err := s.do(ctx, "get the ACL of", path, pathCall(opGetACL, path, 0))
	if err != nil {
		return nil, err
	}
	acl := d.acls()
	if d.err != nil {
		return nil, &opError{"get the ACL of", path, d.err}
	}
	return acl, nil
}

// Sync returns when the connected server knows everything that the leader knew at the time of the
// call. Reads that begin after the call to Sync see that.
func (s *Session) Sync(ctx context.Context, path string) error {
	_, err := s.do(ctx, "sync", path, syncCall(path))
	return err
}
