package testenv

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/adler32"
	"os"
	"path/filepath"
)

// Forge sets how many children nodes have had, by path. From these counts the servers take the next
// sequence number. Forge changes the stopped server's snapshot. The server must have been restarted
// since the nodes were created, so that a snapshot contains them.
func (z *ZooKeeperServer) Forge(counts map[string]int32) {
	z.t.Helper()
	dir := filepath.Join(filepath.Dir(z.argv[len(z.argv)-1]), "version-2")
	// The newest has the largest transaction number; all have as many digits as needed.
	all, err := filepath.Glob(filepath.Join(dir, "snapshot.*"))
	newest := ""
	for _, f := range all {
		if len(f) > len(newest) || len(f) == len(newest) && f > newest {
			newest = f
		}
	}
	var b []byte
	if err == nil {
		b, err = os.ReadFile(newest)
	}
	if err == nil {
		err = forge(b, counts)
	}
	if err == nil {
		err = os.WriteFile(newest, b, 0o600)
	}
	if err != nil {
		z.t.Fatalf("forge %q: %v", newest, err)
	}
}

// snapshot is a position in a snapshot. The format is that of FileSnap and DataTree of ZooKeeper
// 3.6 and later, not compressed.
type snapshot struct {
	b  []byte
	at int
}

func (s *snapshot) skip(n int) { s.at += n }

func (s *snapshot) int() int {
	n := int(int32(binary.BigEndian.Uint32(s.b[s.at:])))
	s.at += 4
	return n
}

func (s *snapshot) buffer() []byte {
	n := max(s.int(), 0)
	s.at += n
	return s.b[s.at-n : s.at]
}

// forge changes the counts in a snapshot, and its checksums.
func forge(b []byte, counts map[string]int32) (err error) {
	defer func() {
		if r := recover(); r != nil { // read past the end
			err = fmt.Errorf("not a snapshot as expected: %v", r)
		}
	}()
	if !bytes.HasPrefix(b, []byte("ZKSN")) {
		return errors.New("not a snapshot")
	}
	s := &snapshot{b, 16}
	for n := s.int(); n > 0; n-- { // sessions: id, timeout
		s.skip(12)
	}
	for n := s.int(); n > 0; n-- { // ACLs: number, entries
		s.skip(8)
		for m := s.int(); m > 0; m-- {
			s.skip(4)
			s.buffer()
			s.buffer()
		}
	}
	changed := 0
	for {
		path := string(s.buffer())
		if path == "/" { // the end; the root's own path is ""
			break
		}
		s.buffer()
		s.skip(8 + 4*8 + 4) // ACL; czxid, mzxid, ctime, mtime; version
		if n, ok := counts[path]; ok {
			binary.BigEndian.PutUint32(b[s.at:], uint32(n))
			changed++
		}
		s.skip(4 + 4 + 2*8) // cversion, aversion; owner, pzxid
	}
	if changed != len(counts) {
		return fmt.Errorf("%d of %d nodes found", changed, len(counts))
	}
	for s.at < len(b) { // a checksum of everything before, "/", and perhaps a digest and both again
		binary.BigEndian.PutUint64(b[s.at:], uint64(adler32.Checksum(b[:s.at])))
		s.skip(8)
		s.buffer()
		if s.at < len(b) {
			s.skip(8 + 4 + 8)
		}
	}
	return nil
}
