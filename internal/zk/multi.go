package zk

import (
	"context"
	"errors"
	"slices"
)

// Op is a part of a Multi.
type Op struct {
	op      opcode
	path    string
	data    []byte
	version int32
	mode    Mode
	acl     []ACL
}

// CheckOp demands that the node exists and has this version.
func CheckOp(path string, version int32) Op { return Op{op: opCheck, path: path, version: version} }

// DeleteOp is Delete.
func DeleteOp(path string, version int32) Op { return Op{op: opDelete, path: path, version: version} }

// SetOp is Set.
func SetOp(path string, data []byte, version int32) Op {
	return Op{op: opSetData, path: path, data: data, version: version}
}

// CreateOp is Create.
func CreateOp(path string, data []byte, mode Mode, acl []ACL) Op {
	return Op{op: createOp(mode), path: path, data: data, mode: mode, acl: acl}
}

// before35 returns op for servers that know neither containers nor create2.
func (op Op) before35() Op {
	switch op.op {
	case opCreate2:
		op.op = opCreate
	case opCreateContainer:
		op.op, op.mode = opCreate, Persistent
	}
	return op
}

// Result is the result of an Op.
type Result struct {
	Path string // of CreateOp
	Stat Stat   // of SetOp; of CreateOp the fields that Create knows without the server's Stat
	Err  error  // why the Multi failed; ErrRolledBack if another Op failed
}

// Multi carries out all of ops in one step, or none. Its error is that of the first op that failed;
// results then has the error of each.
func (s *Session) Multi(ctx context.Context, ops ...Op) ([]Result, error) {
	old := s.isOld()
	results, err := s.multi(ctx, ops, old)
	creates := func(op Op) bool { return op.op == opCreate2 || op.op == opCreateContainer }
	if old || !errors.Is(err, ErrMarshalling) && !errors.Is(err, ErrUnimplemented) || !slices.ContainsFunc(ops, creates) {
		return results, err
	}
	s.becomeOld()
	return s.multi(ctx, ops, true)
}

func (s *Session) isOld() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.old
}

// becomeOld records that the servers are older than 3.5 and do not know create2.
func (s *Session) becomeOld() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.old = true
}

func (s *Session) multi(ctx context.Context, ops []Op, old bool) ([]Result, error) {
	c := newCall(opMulti, 64*len(ops)+16)
	path := "/"
	for i, op := range ops {
		if i == 0 {
			path = op.path
		}
		if err := checkPath(op.path); err != nil {
			return nil, &opError{"multi", op.path, notSent(err)}
		}
		if old {
			op = op.before35()
		}
		encodeMultiHeader(&c.e, op.op, false)
		c.e.string(op.path)
		switch op.op {
		case opSetData:
			c.e.buffer(op.data)
			c.e.int32(op.version)
		case opCreate, opCreate2, opCreateContainer:
			encodeCreate(&c.e, op.data, op.mode, op.acl)
		default:
			c.e.int32(op.version)
		}
	}
	encodeMultiHeader(&c.e, opFailed, true)
	d, err := s.do(ctx, "multi", path, c)
	if err != nil {
		// Servers put an error into the header, too; the results of all ops follow anyway.
		var code Code
		if errors.Is(err, ErrConnectionLoss) || !errors.As(err, &code) || len(c.body) == 0 {
			return nil, err
		}
		d = decoder{b: c.body}
	}
	results, failed := s.decodeMulti(&d, len(ops))
	if d.err != nil {
		return nil, &opError{"multi", path, d.err}
	}
	for i, op := range ops {
		if results[i].Path != "" && results[i].Stat.Czxid == 0 {
			results[i].Stat = s.bareStat(c.hdr.zxid, op.data, op.mode)
		}
	}
	if failed >= 0 {
		return results, &opError{"multi", ops[failed].path, results[failed].Err}
	}
	return results, err
}

func encodeMultiHeader(e *encoder, op opcode, done bool) {
	e.int32(int32(op))
	e.bool(done)
	e.int32(-1)
}

// decodeMulti reads n results. It returns the index of the one that failed, or -1.
func (s *Session) decodeMulti(d *decoder, n int) (results []Result, failed int) {
	failed = -1
	for d.err == nil {
		op := opcode(d.int32())
		done := d.bool()
		d.int32() // an error, which is also in the result
		if done || d.err != nil {
			break
		}
		if len(results) == n {
			d.err = errMalformed
			break
		}
		var r Result
		switch op {
		case opCreate:
			r.Path = d.string()
		case opCreate2, opCreateContainer:
			r.Path, r.Stat = d.string(), d.stat()
		case opSetData:
			r.Stat = d.stat()
		case opDelete, opCheck:
		case opFailed:
			code := Code(d.int32())
			r.Err = ErrRolledBack
			if code != 0 && code != ErrRolledBack {
				r.Err = code
				failed = len(results)
			}
		default:
			d.err = errMalformed
		}
		results = append(results, r)
	}
	if len(results) != n && d.err == nil {
		d.err = errMalformed
	}
	return results, failed
}
