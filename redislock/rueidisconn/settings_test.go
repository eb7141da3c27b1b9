package rueidisconn

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// The limits of the client are those of the URL.
func TestSettings(t *testing.T) {
	s, err := parse("redis+sentinel://h/m?dial-timeout=150ms&read-timeout=1m&pool-size=2")
	if err != nil || s.Dialer.Timeout != 150*time.Millisecond || s.Sentinel.Dialer.Timeout != s.Dialer.Timeout ||
		s.ConnWriteTimeout != time.Minute || s.pool != 2 {
		t.Errorf("%+v, %v", s, err)
	}
	if s, err = parse("redis://h"); err != nil || s.Dialer.Timeout != dialTimeout || s.ConnWriteTimeout != ioTimeout ||
		s.pool != 0 {
		t.Errorf("%+v, %v", s, err)
	}
	for query, want := range map[string]string{
		"dial-timeout=99ms": "dial-timeout is not a time with its unit, such as 2s, from 100ms to 1m",
		"dial-timeout=2":    "dial-timeout is not a time", "dial-timeout=": "dial-timeout is not a time",
		"read-timeout=61s": "read-timeout is not a time", "read-timeout=-1s": "read-timeout is not a time",
		"pool-size=1": "pool-size is not a number from 2 to 1024", "pool-size=1025": "pool-size is not",
		"pool-size=x":                       "pool-size is not",
		"pool_size=4":                       `"pool_size" is unknown (did you mean pool-size?): this URL may have `,
		"dial_timeout=4s":                   "did you mean dial-timeout?",
		"read-timeout=1s&read-timeout=2s":   `"read-timeout" is given twice`,
		"password-file=relative":            "password file relative: its path must be absolute",
		"sentinelpassword-file=/no":         `"sentinelpassword-file" is unknown`,
		"password-file=/a&password-file=/b": `"password-file" is given twice`,
	} {
		if _, err := parse("redis://h?" + query); !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %s", query, err, want)
		}
	}
}

// A password of the sentinels comes from a file, too.
func TestSentinelPasswordFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("pw\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := parse("redis+sentinel://u@h/m?sentineluser=w&sentinelpassword-file=" + file + "&password-file=" + file)
	if err != nil || s.Password != "pw" || s.Sentinel.Password != "pw" || s.AuthCredentialsFn != nil {
		t.Errorf("%q, %q, %v", s.Password, s.Sentinel.Password, err)
	}
	_, err = parse("redis+sentinel://h/m?sentinelpassword=pw&sentinelpassword-file=" + file)
	if err == nil || !strings.Contains(err.Error(), "contradict each other") {
		t.Error(err)
	}
}

// A request that waits for replicas waits for one of the connections that pool-size allows, and no
// longer than its context.
func TestPoolSize(t *testing.T) {
	r := testenv.Redis(t)
	conn, err := Dial(r.URL() + "?pool-size=2")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const patience = 10 * time.Second
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() { _, _, _ = conn.RunWait(t.Context(), nil, 1, patience) })
	}
	for limit := time.Now().Add(patience); r.Info("clients")["blocked_clients"] != "2"; {
		if time.Now().After(limit) {
			t.Fatal("the requests do not wait for replicas")
		}
		time.Sleep(5 * time.Millisecond) // there is no event for it
	}
	for limit := 50 * time.Millisecond; ; limit *= 2 {
		short, cancel := context.WithTimeout(t.Context(), limit)
		_, _, err = conn.RunWait(short, nil, 1, patience)
		cancel()
		if errors.Is(err, driver.ErrUnavailable) && strings.Contains(err.Error(), "pool-size") {
			break
		}
		if limit > 10*time.Second || !errors.Is(err, driver.ErrUnavailable) {
			t.Error(err)
			break
		}
		// The context ended before the request waited for a connection.
	}
	both.Wait()
	if _, _, err = conn.RunWait(t.Context(), nil, 1, time.Millisecond); err != nil {
		t.Error(err)
	}
}

// A server that accepts connections and never answers is given up after dial-timeout.
func TestDialTimeout(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	quickest := ioTimeout
	for try := 0; try < 5 && quickest >= ioTimeout; try++ { // a busy machine may take longer
		began := time.Now()
		_, err = Dial("redis://" + l.Addr().String() + "?dial-timeout=200ms&read-timeout=200ms")
		took := time.Since(began)
		if quickest = min(quickest, took); !errors.Is(err, driver.ErrUnavailable) || took < 200*time.Millisecond {
			t.Errorf("%v after %v", err, took)
		}
	}
	if quickest >= ioTimeout {
		t.Errorf("no call ended within %v", ioTimeout)
	}
}
