package redislock_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
)

// TestServerError: what the servers' replies mean, in the words of Redis 7 and Redis 6.
func TestServerError(t *testing.T) {
	const seven, six = " script: 8f43ad, on @user_script:3.",
		"ERR Error running script (call to f_8f43ad): @user_script:3: @user_script: 3: -"
	for _, c := range []struct {
		text          string
		single, moved error
		says          string
	}{
		{"NOAUTH Authentication required.", driver.ErrRefused, driver.ErrRefused, "password"},
		{"WRONGPASS invalid username-password pair or user is disabled.", driver.ErrRefused, driver.ErrRefused, "wrong"},
		{"NOPERM this user has no permissions to access the 'OOM ' key", driver.ErrRefused, driver.ErrRefused, "permission"},
		{"ERR The user executing the script can't run this command or subcommand" + seven, driver.ErrRefused,
			driver.ErrRefused, "lacks a permission"},
		{"ERR The user executing the script can't access at least one of the keys mentioned in the command arguments" + seven,
			driver.ErrRefused, driver.ErrRefused, "lacks a permission (The user"},
		{"ERR The user executing the script can't publish to the channel mentioned in the command" + seven, driver.ErrRefused,
			driver.ErrRefused, "lacks a permission"},
		{"READONLY You can't write against a read only replica." + seven, driver.ErrRefused, driver.ErrUnavailable,
			"replica"},
		{six + "READONLY You can't write against a read only replica.", driver.ErrRefused, driver.ErrUnavailable, "replica"},
		{"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", driver.ErrRefused,
			driver.ErrUnavailable, "lost its primary"},
		{"MISCONF Redis is configured to save RDB snapshots" + seven, driver.ErrRefused, driver.ErrRefused, "disk"},
		{"OOM command not allowed when used memory > 'maxmemory'." + seven, driver.ErrRefused, driver.ErrRefused, "memory"},
		{"NOREPLICAS Not enough good replicas to write." + seven, driver.ErrRefused, driver.ErrUnavailable, "replicas"},
		{"LOADING Redis is loading the dataset in memory", driver.ErrUnavailable, driver.ErrUnavailable, "loading"},
		{"BUSY Redis is busy running a script.", driver.ErrUnavailable, driver.ErrUnavailable, "script"},
		{"CLUSTERDOWN The cluster is down", driver.ErrUnavailable, driver.ErrUnavailable, "Cluster"},
		{"ERR max number of clients reached", driver.ErrUnavailable, driver.ErrUnavailable, "clients"},
		{"ERR Script attempted to access a non local key in a cluster node" + seven, driver.ErrUncertain, driver.ErrUncertain,
			"non local"},
		{"MOVED 1 10.0.0.1:6379", driver.ErrRefused, driver.ErrRefused, "redis+cluster"},
		{"WRONGTYPE Operation against a key" + seven, driver.ErrDamaged, driver.ErrDamaged, "type"},
		{"DAMAGED hf:{00}:l:READONLY: it is not the state of a name" + seven, driver.ErrDamaged, driver.ErrDamaged,
			"hf:{00}:l:READONLY"},
		{six + "DAMAGED hf:{00}:l:x: it is none", driver.ErrDamaged, driver.ErrDamaged, "hf:{00}:l:x: it is none"},
		{"ERR unknown command", driver.ErrRefused, driver.ErrRefused, "unknown"},
	} {
		for moves, want := range map[bool]error{false: c.single, true: c.moved} {
			cause := errors.New(c.text)
			err := redislock.ServerError(c.text, cause, moves)
			if !errors.Is(err, want) || !errors.Is(err, cause) {
				t.Errorf("%q, moves %v: %v; want %v", c.text, moves, err, want)
			}
			if !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "user_script") {
				t.Errorf("%q reads %q; want %q in it, and nothing of the script", c.text, err, c.says)
			}
		}
	}
}

// TestTooFewReplicasTold: a client opens at a server that lacks replicas, without checking its
// subscription again and again. Its requests are refused with the reason.
func TestTooFewReplicasTold(t *testing.T) {
	t.Parallel()
	for client, dial := range map[string]func(testing.TB, string) redislock.Conn{
		"rueidis": dialRueidis, "go-redis": dialGoRedis} {
		t.Run(client, func(t *testing.T) {
			t.Parallel()
			server := testenv.Redis(t, "--min-replicas-to-write", "1")
			b := redislock.New(dial(t, server.Addr), nil)
			t.Cleanup(func() { _ = b.Close() })
			c, err := holdfast.New(within(t, soon), b, &holdfast.Config{TTL: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close(within(t, soon)) })
			_, err = c.Mutex("x").Lock(within(t, soon))
			if !errors.Is(err, driver.ErrRefused) || !strings.Contains(err.Error(), "min-replicas-to-write") {
				t.Errorf("Lock: %v; want ErrRefused, and the setting's name", err)
			}
			var refused int
			if _, err := fmt.Sscanf(server.Info("errorstats")["errorstat_NOREPLICAS"], "count=%d", &refused); err != nil ||
				refused > 8 {
				t.Errorf("the server refused %d scripts (%v); want a few", refused, err)
			}
		})
	}
}

// TestReplicaTold: a client of a replica gets an error at once, with the address of the primary.
func TestReplicaTold(t *testing.T) {
	t.Parallel()
	set := testenv.RedisReplicas(t, 1)
	replica := set.Replicas[0]
	info := replica.Info("replication")
	for client, conn := range map[string]redislock.Conn{
		"rueidis":  dialURL(t, replica.URL()),
		"go-redis": viaGoRedis(t, redis.NewClient(&redis.Options{Addr: replica.Addr})),
	} {
		t.Run(client, func(t *testing.T) {
			b := redislock.New(conn, nil)
			t.Cleanup(func() { _ = b.Close() })
			c, err := holdfast.New(within(t, soon), b, &holdfast.Config{TTL: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close(within(t, soon)) })
			start := time.Now()
			_, err = c.Mutex("x").Lock(within(t, soon))
			if !errors.Is(err, driver.ErrRefused) || !strings.Contains(err.Error(),
				info["master_host"]+":"+info["master_port"]) {
				t.Errorf("Lock: %v; want ErrRefused, with the primary's address %s:%s", err, info["master_host"],
					info["master_port"])
			}
			if d := time.Since(start); d > soon {
				t.Errorf("Lock failed after %v", d)
			}
		})
	}
}
