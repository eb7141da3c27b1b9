package zk

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// A wrong length does not cause a large allocation.
func TestLyingLengths(t *testing.T) {
	lying := binary.BigEndian.AppendUint32(nil, 1<<29)
	vector := append(binary.BigEndian.AppendUint32(nil, 1<<30), make([]byte, 100)...)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := readPacket(bufio.NewReader(bytes.NewReader(append(lying, "xyz"...))), 1<<30); err == nil {
		t.Error("a packet without an end was read")
	}
	d := decoder{b: vector}
	if d.strings(); !errors.Is(d.err, errMalformed) {
		t.Errorf("a vector that is longer than its packet: %v", d.err)
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
		t.Errorf("%d bytes were allocated", n)
	}
	if _, err := readPacket(bufio.NewReader(bytes.NewReader([]byte{0xff, 0xff, 0xff, 0xff})), 1<<20); !errors.Is(err,
		errMalformed) {
		t.Errorf("a negative length: %v", err)
	}
}

func TestReadPacket(t *testing.T) {
	for _, n := range []int{0, 1, 64 << 10, 64<<10 + 1, 300_000} {
		body := bytes.Repeat([]byte("0123456789"), n/10+1)[:n]
		packet := append(binary.BigEndian.AppendUint32(nil, uint32(n)), body...)
		r := bufio.NewReader(bytes.NewReader(slices.Concat(packet, packet)))
		for range 2 {
			if got, err := readPacket(r, 1<<20); err != nil || !bytes.Equal(got, body) {
				t.Errorf("%d bytes: got %d, %v", n, len(got), err)
			}
		}
		if n > 16 {
			r = bufio.NewReader(bytes.NewReader(slices.Concat(packet, []byte{0, 0, 0, 1, 'x'})))
			if got, err := readPacket(r, n-1); !errors.Is(err, ErrTooLarge) && n-1 > 16 || !bytes.Equal(got, body[:16]) {
				t.Errorf("%d bytes, one too many: %q, %v", n, got, err)
			}
			if got, err := readPacket(r, n-1); err != nil || string(got) != "x" {
				t.Errorf("after a discarded packet of %d bytes: %q, %v", n, got, err)
			}
		}
	}
}

func TestProof(t *testing.T) {
	const timeout = 4 * time.Second // so δ is 1 s
	base := time.Now()
	at := func(ms int) time.Time { return base.Add(time.Duration(ms) * time.Millisecond) }
	var p proof
	check := func(what string, ms int) {
		t.Helper()
		if !p.at.Equal(at(ms)) {
			t.Errorf("%s: the proof is of %v; want %d ms", what, p.at.Sub(base), ms)
		}
	}
	p.connected(at(0), at(10))
	check("connected", 0)
	p.answered(at(600), at(610), false, timeout)
	check("a read proves nothing", 0)
	p.answered(at(1605), at(1620), true, timeout)
	check("the server answered the read too late to report it to the leader before the sync", 0)
	p.answered(at(1615), at(1625), true, timeout)
	check("the leader knows of the read", 600)
	p.answered(at(1700), at(5000), false, timeout)
	p.answered(at(5500), at(5510), true, timeout)
	check("of the requests before, the sync alone was answered in time", 1605)
	for i := range 100_000 {
		p.answered(at(5600+i), at(5601+i), false, timeout)
		if i%500 == 0 {
			p.answered(at(5600+i), at(5601+i), true, timeout)
		}
	}
	if len(p.contacts) > 32 {
		t.Errorf("%d requests are remembered", len(p.contacts))
	}
	if age := at(105_100).Sub(p.at); age > 1600*time.Millisecond {
		t.Errorf("with requests all the time the proof is %v old", age)
	}
	p.connected(at(200_000), at(200_010))
	check("connected again", 200_000)
}

// Old servers refuse packets larger than 128 KiB.
func TestResumePackets(t *testing.T) {
	w := newWatches()
	if packets := w.resume(1); len(packets) != 0 {
		t.Errorf("nothing to resume: %d bytes", len(packets))
	}
	const paths = 3000
	for i := range paths {
		kind := []watchKind{watchData, watchExist, watchChild}[i%3]
		w.set[kind][fmt.Sprintf("/%s%d", strings.Repeat("x", 200), i)] = []*Watch{nil}
	}
	r := bufio.NewReader(bytes.NewReader(w.resume(4711)))
	found, packets := 0, 0
	for {
		b, err := readPacket(r, 128<<10)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		packets++
		d := decoder{b: b}
		if xid, op, zxid := d.int32(), opcode(d.int32()), d.int64(); xid != xidSetWatches || op != opSetWatches ||
			zxid != 4711 {
			t.Errorf("exchange %d, operation %d, transaction %d", xid, op, zxid)
		}
		for len(d.b) > 0 && d.err == nil {
			found += len(d.strings())
		}
		if d.err != nil {
			t.Fatal(d.err)
		}
	}
	if found != paths || packets < 2 {
		t.Errorf("%d paths in %d packets; want %d", found, packets, paths)
	}
}

func FuzzDecode(f *testing.F) {
	e := encoder{}
	e.strings([]string{"a", "", "bc"})
	f.Add(e.b)
	e = encoder{}
	encodeMultiHeader(&e, opSetData, false)
	e.b = append(e.b, make([]byte, 68)...)
	encodeMultiHeader(&e, opFailed, true)
	f.Add(e.b)
	f.Add((&connectRequest{password: make([]byte, 16)}).packet())
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _ = decodeConnectReply(b)
		d := decoder{b: b}
		d.header()
		d.event()
		d = decoder{b: b}
		all := d.strings()
		if d.err != nil && all != nil || len(all) > len(b)/4 {
			t.Fatalf("%d strings of %d bytes, %v", len(all), len(b), d.err)
		}
		if d.err == nil && all != nil {
			var e encoder
			e.strings(all)
			again := decoder{b: e.b}
			if !slices.Equal(again.strings(), all) {
				t.Fatal("strings do not survive")
			}
		}
		s := &Session{}
		d = decoder{b: b}
		if results, _ := s.decodeMulti(&d, 3); d.err == nil && len(results) != 3 {
			t.Fatalf("%d results", len(results))
		}
	})
}

func FuzzReadPacket(f *testing.F) {
	f.Add([]byte{0, 0, 0, 1, 'x'}, 16)
	f.Add([]byte{0x7f, 0xff, 0xff, 0xff}, 1<<30)
	f.Fuzz(func(t *testing.T, b []byte, limit int) {
		r := bufio.NewReader(bytes.NewReader(b))
		for {
			got, err := readPacket(r, limit)
			if err != nil {
				return
			}
			if len(got) > len(b) {
				t.Fatalf("%d bytes of %d", len(got), len(b))
			}
		}
	})
}
