package cli

import (
	"net"
	"strings"
	"testing"
)

func TestAddresses(t *testing.T) {
	for url, want := range map[string]string{
		"redis://h": "h:6379", "redis://u:p@h:7/2": "h:7", "rediss+sentinel://a,b:1/m": "a:26379 b:1",
		"postgres://h/d?x=@y": "h:5432", "zk://[::1]": "[::1]:2181", "mysql://u@/d?socket=x": "", "sqlite:x": "", "": "",
		"redis+unix:///s": "",
	} {
		if got := strings.Join(addresses(url), " "); got != want {
			t.Errorf("%s: %q, want %q", url, got, want)
		}
	}
}

// The advice tells a server that takes connections from one that cannot be reached.
func TestSilentServers(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // the kernel takes connections
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	for url, want := range map[string]string{
		"redis://" + l.Addr().String():                     "it takes connections and says nothing",
		"redis+cluster://" + l.Addr().String():             "the server of the URL takes connections; the silent one may be",
		"rediss+sentinel://" + l.Addr().String() + "/m":    "the server of the URL takes connections; the silent one may be",
		"redis+cluster://127.0.0.1:1," + l.Addr().String(): "1 of 2 servers of the URL take connections",
		"zk://127.0.0.1:1," + l.Addr().String():            "1 of 2 servers take connections; one of them",
		"redis://127.0.0.1:1":                              "no connection is possible either",
	} {
		if got := silentServers(url); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, want %q", url, got, want)
		}
	}
	if got := otherPort("redis://h:5432", "h:5432"); got != " (port 5432 is mostly that of PostgreSQL)" {
		t.Error(got)
	}
	if got := otherPort("valkey://h", "h:6379"); got != "" {
		t.Error(got)
	}
}
