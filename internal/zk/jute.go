package zk

import (
	"encoding/binary"
	"errors"
)

// errMalformed: a packet does not follow the protocol.
var errMalformed = errors.New("zk: malformed packet")

// encoder appends values in jute's binary form: big endian, with lengths before values of variable
// size.
type encoder struct{ b []byte }

// newPacket begins a packet; finish fills in its length.
func newPacket(size int) encoder { return encoder{make([]byte, 4, 4+size)} }

func (e *encoder) finish() []byte {
	binary.BigEndian.PutUint32(e.b, uint32(len(e.b)-4))
	return e.b
}

func (e *encoder) int32(v int32) { e.b = binary.BigEndian.AppendUint32(e.b, uint32(v)) }
func (e *encoder) int64(v int64) { e.b = binary.BigEndian.AppendUint64(e.b, uint64(v)) }

func (e *encoder) bool(v bool) {
	if v {
		e.b = append(e.b, 1)
	} else {
		e.b = append(e.b, 0)
	}
}

func (e *encoder) string(s string) {
	e.int32(int32(len(s)))
	e.b = append(e.b, s...)
}

func (e *encoder) buffer(p []byte) {
	e.int32(int32(len(p)))
	e.b = append(e.b, p...)
}

func (e *encoder) strings(all []string) {
	e.int32(int32(len(all)))
	for _, s := range all {
		e.string(s)
	}
}

func (e *encoder) acls(all []ACL) {
	e.int32(int32(len(all)))
	for _, a := range all {
		e.int32(a.Perms)
		e.string(a.Scheme)
		e.string(a.ID)
	}
}

// decoder takes values from the front of b. After the first error all values are zero.
type decoder struct {
	b   []byte
	err error
}

// take returns the next n bytes, as a part of b.
func (d *decoder) take(n int) []byte {
	if d.err != nil || n < 0 || n > len(d.b) {
		d.err = errMalformed
		return nil
	}
	p := d.b[:n:n]
	d.b = d.b[n:]
	return p
}

func (d *decoder) int32() int32 {
	if p := d.take(4); p != nil {
		return int32(binary.BigEndian.Uint32(p))
	}
	return 0
}

func (d *decoder) int64() int64 {
	if p := d.take(8); p != nil {
		return int64(binary.BigEndian.Uint64(p))
	}
	return 0
}

func (d *decoder) bool() bool {
	p := d.take(1)
	return p != nil && p[0] != 0
}

// buffer returns bytes as a part of b. A length of -1 means no buffer.
func (d *decoder) buffer() []byte {
	n := d.int32()
	if n == -1 {
		return nil
	}
	return d.take(int(n))
}

func (d *decoder) string() string { return string(d.buffer()) }

// strings reads a vector. Its strings share one copy of their bytes.
func (d *decoder) strings() []string {
	n := int(d.int32())
	if n == -1 || d.err != nil {
		return nil
	}
	if n < 0 || n > len(d.b)/4 { // each takes at least four bytes, which bounds a wrong count
		d.err = errMalformed
		return nil
	}
	whole, all := d.b, make([]string, 0, n)
	text := string(whole)
	for range n {
		p := d.buffer()
		if d.err != nil {
			return nil
		}
		end := len(whole) - len(d.b)
		all = append(all, text[end-len(p):end])
	}
	return all
}

func (d *decoder) acls() (all []ACL) {
	n := int(d.int32())
	if n > len(d.b)/12 { // each takes at least twelve bytes
		d.err = errMalformed
	}
	for i := 0; i < n && d.err == nil; i++ {
		all = append(all, ACL{Perms: d.int32(), Scheme: d.string(), ID: d.string()})
	}
	return all
}

func (d *decoder) stat() Stat {
	return Stat{
		Czxid: d.int64(), Mzxid: d.int64(), Ctime: d.int64(), Mtime: d.int64(),
		Version: d.int32(), Cversion: d.int32(), Aversion: d.int32(),
		EphemeralOwner: d.int64(), DataLength: d.int32(), NumChildren: d.int32(), Pzxid: d.int64(),
	}
}

// Stat is a node's metadata at a server. Ctime and Mtime are the server's wall clock in
// milliseconds.
type Stat struct {
	Czxid, Mzxid                int64 // transactions that created it and last set its data
	Ctime, Mtime                int64
	Version, Cversion, Aversion int32 // counts of changes: data, children, ACL
	EphemeralOwner              int64 // the session that owns it; 0: none
	DataLength, NumChildren     int32
	Pzxid                       int64 // transaction that last created or deleted a child
}
