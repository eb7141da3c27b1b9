//go:build linux

package open

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// nowhere is a host that only the dialer of the tests knows.
const nowhere = "nowhere.invalid"

// testDialer is a dialer that records its connections and their addresses.
type testDialer struct {
	mu     sync.Mutex
	asked  map[string]int  // by network and address
	local  map[string]bool // local addresses
	refuse func(address string) bool
}

func newTestDialer() *testDialer {
	return &testDialer{asked: map[string]int{}, local: map[string]bool{}}
}

var errRefused = errors.New("the dialer refuses")

func (w *testDialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	w.mu.Lock()
	w.asked[network+" "+address]++
	w.mu.Unlock()
	if w.refuse != nil && w.refuse(address) {
		return nil, errRefused
	}
	c, err := (&net.Dialer{}).DialContext(ctx, network, strings.Replace(address, nowhere, "127.0.0.1", 1))
	if err == nil {
		w.mu.Lock()
		w.local[c.LocalAddr().String()] = true
		w.mu.Unlock()
	}
	return c, err
}

// others returns the connections of this process to these ports that the dialer did not make.
// Nothing in a socket shows who made it, so others reads the tables of the kernel.
func (w *testDialer) others(t *testing.T, ports []string) (list []string) {
	t.Helper()
	own := map[string]bool{}
	fds, err := filepath.Glob("/proc/self/fd/*")
	if err != nil || len(fds) == 0 {
		t.Fatal("no file descriptors", err)
	}
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err == nil {
			if inode, ok := strings.CutPrefix(to, "socket:["); ok {
				own[strings.TrimSuffix(inode, "]")] = true
			}
		} else if !errors.Is(err, fs.ErrNotExist) { // closed meanwhile
			t.Fatal(err)
		}
	}
	table, err := os.ReadFile("/proc/self/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for line := range strings.Lines(string(table)) {
		f := strings.Fields(line)
		if len(f) < 10 || !own[f[9]] {
			continue
		}
		local, remote := kernelAddr(t, f[1]), kernelAddr(t, f[2])
		if _, port, _ := net.SplitHostPort(remote); !slices.Contains(ports, port) {
			continue
		}
		w.mu.Lock()
		if seen++; !w.local[local] {
			list = append(list, local+" to "+remote)
		}
		w.mu.Unlock()
	}
	if seen == 0 && len(ports) > 0 {
		t.Error("the table of the kernel shows no connection")
	}
	return list
}

// strange returns those of a list of others that the dialer still has not made.
func (w *testDialer) strange(list []string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(list, func(c string) bool {
		local, _, _ := strings.Cut(c, " ")
		return w.local[local]
	})
}

// kernelAddr decodes an IPv4 address of /proc/net/tcp, which has the bytes in memory order.
func kernelAddr(t *testing.T, s string) string {
	t.Helper()
	host, port, _ := strings.Cut(s, ":")
	b, err := hex.DecodeString(host)
	n, perr := strconv.ParseUint(port, 16, 16)
	if err != nil || perr != nil || len(b) != 4 {
		t.Fatalf("address %q", s)
	}
	slices.Reverse(b)
	return net.JoinHostPort(net.IP(b).String(), fmt.Sprint(n))
}

func portsOf(addrs ...string) (ports []string) {
	for _, a := range addrs {
		_, port, _ := net.SplitHostPort(a)
		ports = append(ports, port)
	}
	return ports
}
