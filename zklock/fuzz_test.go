package zklock

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/zk"
)

// decode reverses folder below the root.
func decode(t testing.TB, path string, top bool) string {
	t.Helper()
	var levels []string
	for i, node := range strings.Split(strings.TrimPrefix(path, "/"), "/") {
		level, ok := decodeLevel(node, i == 0, top)
		if !ok {
			t.Fatalf("%q: the level %q belongs to no name", path, node)
		}
		levels = append(levels, level)
	}
	return strings.Join(levels, "/")
}

// Every name has a folder of its own that the servers accept, and the folder gives the name.
// Otherwise the name is refused, because its path has another meaning. A name that can be a path is
// used unchanged.
func FuzzName(f *testing.F) {
	for _, name := range []string{
		"a", "/", "//", "a/", "/a", "a//b", ".", "..", "...", "a/../b", "%", "%25", "50%", "a/%", "%2F", "zookeeper",
		"a/zookeeper", "zookeeper/a",
		"locks", "a/locks", "a/leases", "a/latch", "a/b/latch", "latch", "\x00", "\x7f", "\u009f", "\u00a0", "é", "🔒",
		"\ufffe", "\ue000", "\ufff0",
		"_c_x-lock-0000000001", "a/x-lock-0000000001", "a/50%-lock-0000000001", "a/x-lock-000000000\x011",
		"a/\x01-lock-0000000001",
		"a/x__lock__-2147483648", "a/-__READ__0000000001/b", "a/x-lock-0000000001%", "%holdfast", "%holdfast%",
		"a/%holdfast%a%0Ab", "a/%holdfast:time",
	} {
		f.Add(name, "a")
		f.Add(name, "a/"+escaped+"a%0Ab")
	}
	f.Fuzz(func(t *testing.T, name, other string) {
		if driver.CheckName(name) != nil {
			return
		}
		for _, root := range []string{"", "/holdfast"} {
			b := &Backend{root: root}
			path := b.folder(name)
			if b.check(name) != nil {
				continue
			}
			below, ok := strings.CutPrefix(path, root+"/")
			if !ok || !utf8.ValidString(path) || strings.HasSuffix(path, "/") || strings.Contains(path, "//") {
				t.Fatalf("%q: folder %q", name, path)
			}
			for i, level := range strings.Split(name, "/") {
				node := strings.Split(below, "/")[i]
				if !fit(node) || i == 0 && root == "" && node == "zookeeper" {
					t.Errorf("%q: the servers do not accept the level %q", name, node)
				}
				if node != level && fit(level) {
					t.Errorf("%q: Curator would use the level %q as it is, not %q", name, level, node)
				}
				if node != level && !strings.HasPrefix(node, escaped) {
					t.Errorf("%q: the level %q is a name, too", name, node)
				}
				if i > 0 && (contends(node) || node == locksDir || node == leasesDir || node == latchNode || node == clockNode ||
					node == sealNode) {
					t.Errorf("%q: the lock one level up takes the level %q for one of its own nodes", name, node)
				}
			}
			if back := decode(t, below, root == ""); back != name {
				t.Errorf("%q: read back as %q", name, back)
			}
			if other != name && driver.CheckName(other) == nil && b.check(other) == nil && b.folder(other) == path {
				t.Errorf("%q and %q have one folder", name, other)
			}
		}
	})
}

// With protocol Single every name has a node of its own, and the node gives the name.
func FuzzFlat(f *testing.F) {
	for _, name := range []string{"a", "/", "//", "a/b", "a%2Fb", "%", ".", "..", "./..", "zookeeper", "a/zookeeper",
		"é\x00", "a/locks"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if driver.CheckName(name) != nil {
			return
		}
		for _, root := range []string{"", "/holdfast"} {
			b := &Backend{root: root, mode: Single}
			node, ok := strings.CutPrefix(b.flat(name), root+"/")
			if !ok || !fit(node) || strings.Contains(node, "/") || root == "" && node == "zookeeper" || b.check(name) != nil {
				t.Fatalf("%q: node %q", name, node)
			}
			if back, ok := b.unflat(node); !ok || back != name {
				t.Errorf("%q: read back as %q, %v", name, back, ok)
			}
		}
	})
}

// A node that decodes to a level is the encoding of that level.
func FuzzLevel(f *testing.F) {
	for _, node := range []string{
		"a", "%", "%%", "%2", "%2f", "%41", ".", "locks", "x-lock-0000000001", escaped, escaped + "%2E", escaped + "%2E.",
		escaped + "a",
		escaped + "%6Cocks", escaped + "%FF", escaped + "%2F", escaped + "a%0a", escaped + "a%0A", escaped + "%25%0A",
		escaped + "%%0A", clockNode, reserved,
	} {
		f.Add(node, true)
		f.Add(node, false)
	}
	f.Fuzz(func(t *testing.T, node string, first bool) {
		for _, top := range []bool{false, true} {
			level, ok := decodeLevel(node, first, top)
			if ok && encodeLevel(level) != node {
				t.Errorf("%q is read as %q, which is written %q", node, level, encodeLevel(level))
			}
			if ok && (strings.Contains(level, "/") && !strings.Contains(node, "/") || !utf8.ValidString(level) &&
				utf8.ValidString(node)) {
				t.Errorf("%q is read as %q", node, level)
			}
		}
	})
}

func TestParseNode(t *testing.T) {
	const u = "0f8fad5b-d9cb-469f-a165-70867728950e"
	for _, c := range []struct {
		name, what string
		ok         bool
		role       role
		seq        int64
		uuid       string
	}{
		{"_c_" + u + "-lock-0000000012", "Curator's mutex", true, exclusive, 12, u},
		{"_c_" + u + "-__WRIT__0000000012", "Curator's writer", true, exclusive, 12, u},
		{"_c_" + u + "-__READ__0000000012", "Curator's reader", true, shared, 12, u},
		{"_c_" + u + "-lease-0000000012", "Curator's permit", true, lease, 12, u},
		{"lock-0000000012", "Curator's without protection", true, exclusive, 12, ""},
		{"_c_0f8fad5bd9cb469fa16570867728950e-lock-0000000012", "go-zookeeper's", true, exclusive, 12, ""},
		{"0f8fad5bd9cb469fa16570867728950e__lock__0000000012", "kazoo's", true, exclusive, 12, ""},
		{"0f8fad5bd9cb469fa16570867728950e__rlock__0000000012", "kazoo's reader", true, shared, 12, ""},
		{"x-lock--000000001", "negative as Java prints it", true, exclusive, -1, ""},
		{"x-lock--2147483648", "the lowest", true, exclusive, -1 << 31, ""},
		{"x-lock-2147483647", "the highest", true, exclusive, 1<<31 - 1, ""},
		{"x-lock-2147483648", "beyond", false, 0, 0, ""},
		{"x-lock-00000000012", "eleven digits", true, exclusive, 12, ""},
		{"x-lock-000000000012", "twelve digits", false, 0, 0, ""},
		{"x-lock-000000012", "nine digits", false, 0, 0, ""},
		{"x-lock-+000000012", "a plus", false, 0, 0, ""},
		{"x-lock-0000_00012", "an underscore", false, 0, 0, ""},
		{"x-lock-0x00000012", "hexadecimal", false, 0, 0, ""},
		{"x-lock-", "no digits", false, 0, 0, ""},
		{"0000000012", "digits only", false, 0, 0, ""},
		{"abc", "anything", false, 0, 0, ""},
		{"_c_x", "short", false, 0, 0, ""},
		{"_c_", "shorter", false, 0, 0, ""},
		{"", "empty", false, 0, 0, ""},
		{"_c_" + u + "-latch-0000000012", "a leader latch's", false, 0, 0, ""},
	} {
		n, ok := parseNode(c.name)
		if ok != c.ok || ok && (n.role != c.role || n.seq != c.seq || n.uuid != c.uuid || n.name != c.name) {
			t.Errorf("%s, %q: %v %+v", c.what, c.name, ok, n)
		}
	}
}

// The order is by number. By text, -1 comes before -2147483648, and kazoo's nodes before Curator's.
func TestOrder(t *testing.T) {
	in := []string{
		"_c_b-lock-0000000003", "zz__lock__0000000002", "a-lock-2147483647", "a-lock--000000001", "a-lock--2147483648", "abc",
		"0000000000",
		"_c_a-__READ__0000000003", "locks", "latch", "_c_", "b-lock-0000000000",
	}
	got := parseDir(in)
	var seqs []int64
	for _, n := range got.queue {
		seqs = append(seqs, n.seq)
	}
	if want := []int64{-1 << 31, -1, 0, 2, 3, 3, 1<<31 - 1}; !slices.Equal(seqs, want) {
		t.Errorf("order %v; want %v", seqs, want)
	}
	if !got.latch || !got.semaphore {
		t.Errorf("latch %v, semaphore %v; want both", got.latch, got.semaphore)
	}
}

// Names that holdfast writes parse to the same node; other names do no harm.
func FuzzParseNode(f *testing.F) {
	f.Add("x-lock-0000000001", "id", int64(1))
	f.Add("_c_-lock-lease-__READ__-000000001", "id-2", int64(-1))
	f.Fuzz(func(t *testing.T, name, id string, seq int64) {
		if n, ok := parseNode(name); ok {
			if n.seq < -1<<31 || n.seq > 1<<31-1 || n.kept() && n.request() == n.uuid {
				t.Errorf("%q: %+v", name, n)
			}
			_ = parseDir([]string{name, "a-lock-0000000001"}).head()
		}
		seq &= maxSequence // holdfast writes no other numbers
		for _, suffix := range []string{mutexSuffix, writeSuffix, readSuffix, leaseSuffix} {
			for _, uuid := range []string{uuidOf(id), keptUUID(uuidOf(id))} {
				n, ok := parseNode(sequenced(uuid, suffix, seq))
				if !ok || n.seq != seq || n.uuid != uuid || suffixOf(n) != suffix || n.kept() != (uuid != uuidOf(id)) ||
					n.request() != uuidOf(id) {
					t.Errorf("%s%s%d: %v %+v", uuid, suffix, seq, ok, n)
				}
			}
		}
	})
}

// Records that holdfast writes parse to the same record. Other data gives text that can be shown.
func FuzzRecord(f *testing.F) {
	f.Add([]byte("holdfast/1 id=a-1 ttl=15000 n=3 limit=5 token=77 keep=1\n{}"), "a-1", int64(1), int64(1), int64(1),
		int64(1), "info")
	f.Add([]byte("127.0.0.1"), "x", int64(0), int64(-1), int64(1<<62), int64(0), "\n\n")
	f.Add([]byte("holdfast/1 ttl=-5 n=99999999999999999999 keep=9223372036854775807 token=x id=A =\n"), "", int64(0),
		int64(0), int64(0), int64(0), "")
	f.Add([]byte(strings.Repeat("é", 4000)), "", int64(0), int64(0), int64(0), int64(0), "")
	f.Fuzz(func(t *testing.T, data []byte, id string, ttl, n, token, keep int64, info string) {
		r := parseRecord(data)
		if r.ttl < 0 || r.ttl > driver.MaxHold || r.keep < 0 || r.keep > driver.MaxHold || r.n < 0 || r.n > driver.MaxLimit ||
			r.limit < 0 || r.limit > driver.MaxLimit {
			t.Errorf("%q: %+v", data, r)
		}
		if r.id != "" && driver.CheckID(r.id) != nil {
			t.Errorf("%q: id %q", data, r.id)
		}
		if !strings.HasPrefix(string(data), magic) && (!utf8.ValidString(r.info) || len(r.info) > driver.MaxInfo) {
			t.Errorf("%q is not fit to be shown: %q", data, r.info)
		}
		if driver.CheckID(id) != nil {
			id = ""
		}
		w := record{
			id: id, ttl: time.Duration(abs(ttl)%int64(driver.MaxHold/time.Millisecond)) * time.Millisecond,
			n:     int(abs(n) % driver.MaxLimit),
			limit: int(abs(n/7) % driver.MaxLimit), token: uint64(abs(token)),
			keep: time.Duration(abs(keep)%int64(driver.MaxHold/time.Millisecond)) * time.Millisecond, info: info,
		}
		if back := parseRecord(w.bytes()); back != w {
			t.Errorf("wrote %+v, read %+v", w, back)
		}
	})
}

// As FuzzRecord, for latches.
func FuzzLatch(f *testing.F) {
	f.Add([]byte("holdfast-latch/1 closed 3 x\n"), int64(3), int32(1))
	f.Add([]byte("holdfast-latch/1 open -3 x\n"), int64(0), int32(-1))
	f.Add([]byte("holdfast-latch/1 removed 99999999999999999999 x\n"), int64(0), int32(0))
	f.Fuzz(func(t *testing.T, data []byte, count int64, children int32) {
		children = int32(abs(int64(children)))
		stat := &zk.Stat{NumChildren: children}
		if l, err := parseLatch(data, stat); l.left() < 0 || err == nil && l.own == "" || err != nil &&
			!errors.Is(err, driver.ErrDamaged) {
			t.Errorf("%q: %+v, %v", data, l, err)
		}
		count = abs(count)
		for _, state := range []string{latchClosed, latchOpen, latchRemoved} {
			l, err := parseLatch(latchData(state, count, "X7"), stat)
			if err != nil || l.count != count || l.live != (state != latchRemoved) || l.open != (state == latchOpen) ||
				l.counted != max(0, int64(children)-1) || l.own != "X7" {
				t.Errorf("%s %d: %+v", state, count, l)
			}
		}
	})
}

func abs(n int64) int64 {
	if n < 0 {
		return -(n + 1)
	}
	return n
}

func FuzzHistoryNodes(f *testing.F) {
	for _, n := range []string{"0000000000-0123456789abcdef0123456789abcdef", "theirs", "-1-", "0000000001-",
		"9223372036854775807-x"} {
		f.Add(n)
	}
	f.Fuzz(func(t *testing.T, node string) {
		list, err := parseHistory("/p", []string{node})
		if err != nil {
			if !errors.Is(err, driver.ErrDamaged) {
				t.Errorf("%q: %v", node, err)
			}
			return
		}
		if next := (&event{seq: list[0].seq + 1, digest: list[0].digest}); list[0].name() != node || next.seq <= list[0].seq {
			t.Errorf("%q is %+v", node, list[0])
		}
	})
}
