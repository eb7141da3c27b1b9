package redislock_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
	"github.com/holdfast-lock/holdfast/redislock/rueidisconn"
)

// ownerCloses is a Conn whose client is closed by its owner, before the Conn.
type ownerCloses struct {
	redislock.Conn
	client rueidis.Client
}

func (c ownerCloses) Close() error {
	c.client.Close()
	return c.Conn.Close()
}

// TestClosedUnderWay: a Conn is closed while the answers of requests do not arrive. The callers of those
// that the server has executed do not hear that nothing was done.
func TestClosedUnderWay(t *testing.T) {
	t.Parallel()
	const calls = 20
	script := &redislock.Script{
		Text: "return redis.call('INCR', KEYS[1])", SHA1: "61636018f4e6b5817b89791bbed242f93fa089e3",
	}
	for client, dial := range map[string]func(testing.TB, string) redislock.Conn{
		"rueidis": dialRueidis, "go-redis": dialGoRedis,
		"rueidis, closed by its owner": func(t testing.TB, addr string) redislock.Conn {
			client := rawClient(t, addr)
			return ownerCloses{rueidisconn.New(client), client}
		},
	} {
		t.Run(client, func(t *testing.T) {
			t.Parallel()
			server := testenv.Redis(t)
			proxy := testenv.Proxy(t, server.Addr)
			conn := dial(t, proxy.Addr)
			answers := make(chan error, calls)
			run := func(key string) {
				for range calls {
					go func() {
						_, err := conn.Run(within(t, soon), script, []string{key}, nil)
						answers <- err
					}()
				}
			}
			run("warm") // so that the client has a pipeline
			for range calls {
				if err := <-answers; err != nil {
					t.Fatal(err)
				}
			}
			proxy.DropReplies()
			defer proxy.Heal()
			run("k")
			executed := func() int {
				n, err := strconv.Atoi(strings.TrimPrefix(server.Do("INCRBY k 0"), ":"))
				if err != nil {
					t.Fatal(err)
				}
				return n
			}
			for executed() == 0 {
				time.Sleep(time.Millisecond)
			}
			closed := make(chan struct{})
			go func() {
				_ = conn.Close()
				close(closed)
			}()
			nothing := 0 // calls that heard that nothing was done
			for range calls {
				if err := <-answers; err == nil {
					t.Error("an answer has arrived")
				} else if !errors.Is(err, driver.ErrUncertain) {
					nothing++
				}
			}
			proxy.Heal()
			<-closed
			if n := executed(); n > calls-nothing {
				t.Errorf("%d of %d calls were done; %d heard that nothing was done", n, calls, nothing)
			}
		})
	}
}
