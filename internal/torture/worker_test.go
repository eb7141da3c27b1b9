//go:build linux

package torture

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/redislock"
	"github.com/holdfast-lock/holdfast/redislock/rueidisconn"
	"github.com/holdfast-lock/holdfast/sqllock"
	"github.com/holdfast-lock/holdfast/sqllock/mysql"
	"github.com/holdfast-lock/holdfast/sqllock/postgres"
	"github.com/holdfast-lock/holdfast/zklock"
)

// TestMain runs the tests, or one worker: the test binary is its own worker program.
func TestMain(m *testing.M) {
	if dir := os.Getenv("TORTURE_DIR"); dir != "" {
		if err := work(dir); err != nil {
			fmt.Fprintln(os.Stderr, "worker:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// open opens the store that a worker was told of.
func open(store string) (driver.Backend, error) {
	if path, ok := strings.CutPrefix(store, "sqlite:"); ok {
		return sqllock.OpenSQLite(path, nil)
	}
	if servers, ok := strings.CutPrefix(store, "zookeeper://"); ok {
		return zklock.New(zklock.Config{Servers: strings.Split(servers, ",")})
	}
	if dsn, ok := strings.CutPrefix(store, "mysql:"); ok {
		return server("mysql", dsn, mysql.Dialect())
	}
	if strings.HasPrefix(store, "postgres://") {
		return server("pgx", store, postgres.Dialect())
	}
	conn, err := rueidisconn.Dial(store)
	if err != nil {
		return nil, err
	}
	return redislock.New(conn, nil), nil
}

// server is a table on a database server, with a pool of its own.
func server(name, dsn string, d sqllock.Dialect) (driver.Backend, error) {
	db, err := sql.Open(name, dsn)
	if err != nil {
		return nil, err
	}
	return pooled{sqllock.New(db, d, nil), db}, nil
}

// pooled closes its pool too.
type pooled struct {
	*sqllock.Server
	db *sql.DB
}

func (p pooled) Close() error { return errors.Join(p.Server.Close(), p.db.Close()) }

// work does its rounds of read, modify, write on the resource, under the lock. Rounds done
// by an earlier life of the same worker count.
func work(dir string) error {
	id, _ := strconv.Atoi(os.Getenv("TORTURE_ID"))
	rounds, _ := strconv.Atoi(os.Getenv("TORTURE_ROUNDS"))
	seed, _ := strconv.ParseUint(os.Getenv("TORTURE_SEED"), 10, 64)
	rng := rand.New(rand.NewPCG(seed, uint64(os.Getpid())))
	done, err := os.OpenFile(filepath.Join(dir, fmt.Sprint("done.", id)), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	res, err := openResource(dir)
	if err != nil {
		return err
	}
	b, err := open(os.Getenv("TORTURE_STORE"))
	if err != nil {
		return err
	}
	defer b.Close()
	ctx := context.Background()
	c, err := connect(ctx, b, fmt.Sprint("worker", id))
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	for {
		if st, err := done.Stat(); err != nil || st.Size() >= int64(rounds) {
			return err
		}
		call := monotonic()
		l, err := lock(c)
		if err != nil {
			return err
		}
		// One write per line, so that a kill leaves whole lines.
		fmt.Fprintf(log, "G %d %d %d\n", l.Token(), call, monotonic())
		accepted := false
		if value, ok := res.begin(l.Token()); ok {
			think(rng)
			now := monotonic()
			if l.Err() == nil {
				fmt.Fprintf(log, "V %d %d 0\n", l.Token(), now)
			}
			// Written whether or not the lease still stands: a program that was stopped between
			// the look and the write cannot know. The resource must refuse it.
			accepted = res.write(l.Token(), value+1)
		}
		if accepted {
			if _, err := done.Write([]byte{'.'}); err != nil {
				return err
			}
		}
		_ = l.Release() // its loss is what this is about; the resource decides
	}
}

// connect opens a client, as long as it takes: the store may be in trouble just now.
func connect(ctx context.Context, b driver.Backend, name string) (*holdfast.Client, error) {
	for end := time.Now().Add(60 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		c, err := holdfast.New(ctx, b, &holdfast.Config{TTL: ttl, Program: name})
		if err == nil || time.Now().After(end) {
			return c, err
		}
	}
}

// lock waits for the lock as long as it takes, but not for ever: a waiter that is never
// served fails the test.
func lock(c *holdfast.Client) (*holdfast.Lease, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	for {
		l, err := c.Mutex("torture/{the} lock").Lock(ctx)
		if err == nil || ctx.Err() != nil {
			return l, err
		}
		time.Sleep(10 * time.Millisecond) // a store that a stopped process blocks
	}
}

func think(rng *rand.Rand) {
	switch n := rng.IntN(1000); {
	case n < 2:
		time.Sleep(ttl + time.Duration(rng.IntN(200))*time.Millisecond) // longer than a TTL
	case n < 300:
		time.Sleep(time.Duration(rng.IntN(3000)) * time.Microsecond)
	}
}

// resource is what the lock guards: a file with a number, and the highest token that it
// has seen. Each operation is atomic, by a lock of the file that has nothing to do with
// the lock under test.
type resource struct{ f *os.File }

func openResource(dir string) (*resource, error) {
	f, err := os.OpenFile(filepath.Join(dir, "resource"), os.O_CREATE|os.O_RDWR, 0o600)
	return &resource{f}, err
}

type state struct{ Highest, Value, Accepted, Refused uint64 }

func (r *resource) atomically(f func(*state)) state {
	if err := syscall.Flock(int(r.f.Fd()), syscall.LOCK_EX); err != nil {
		panic(err)
	}
	defer func() { _ = syscall.Flock(int(r.f.Fd()), syscall.LOCK_UN) }()
	var buf [32]byte
	var s state
	if n, _ := r.f.ReadAt(buf[:], 0); n == len(buf) {
		s = state{binary.LittleEndian.Uint64(buf[0:]), binary.LittleEndian.Uint64(buf[8:]),
			binary.LittleEndian.Uint64(buf[16:]), binary.LittleEndian.Uint64(buf[24:])}
	}
	f(&s)
	for i, v := range []uint64{s.Highest, s.Value, s.Accepted, s.Refused} {
		binary.LittleEndian.PutUint64(buf[8*i:], v)
	}
	if _, err := r.f.WriteAt(buf[:], 0); err != nil {
		panic(err)
	}
	return s
}

// begin is the first contact: it raises the highest token at the read already.
func (r *resource) begin(token uint64) (value uint64, ok bool) {
	r.atomically(func(s *state) {
		if token < s.Highest {
			s.Refused++
			return
		}
		s.Highest, value, ok = token, s.Value, true
	})
	return value, ok
}

func (r *resource) write(token, value uint64) (ok bool) {
	r.atomically(func(s *state) {
		if token < s.Highest {
			s.Refused++
			return
		}
		s.Highest, s.Value, ok = token, value, true
		s.Accepted++
	})
	return ok
}

// monotonic reads the clock that all processes of the machine share.
func monotonic() int64 {
	var ts syscall.Timespec
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, 1, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		panic(errno)
	}
	return ts.Nano()
}
