package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
)

// clusterOperator sends an operator's commands to a Cluster of three primaries.
type clusterOperator struct {
	t     *testing.T
	c     *testenv.RedisClusterServers
	each  []rueidis.Client
	ids   []string
	slot  string
	owner int // the server that has the lock
	next  int // another server, which gets the slot
}

func (o *clusterOperator) do(server int, words ...string) (string, error) {
	reply := o.each[server].Do(o.t.Context(), o.each[server].B().Arbitrary(words...).Build())
	if err := reply.Error(); err != nil {
		return "", err
	}
	return reply.ToString()
}

func (o *clusterOperator) must(server int, words ...string) string {
	o.t.Helper()
	reply, err := o.do(server, words...)
	if err != nil {
		o.t.Fatalf("%q at server %d: %v", words, server, err)
	}
	return reply
}

// forget makes the others forget the owner, and gives its slots to one of them. If the owner still
// has slots to lose, it learns of that from the larger epoch of the other.
func (o *clusterOperator) forget() {
	for i := range o.each {
		if i != o.owner {
			o.must(i, "CLUSTER", "FORGET", o.ids[o.owner])
		}
	}
	o.must(o.next, "CLUSTER", "ADDSLOTSRANGE", fmt.Sprint(o.owner*16384/3), fmt.Sprint((o.owner+1)*16384/3-1))
	o.must(o.next, "CLUSTER", "BUMPEPOCH")
}

// TestClusterOrders: an operator takes the slot and its data from the server that has the lock, in
// each way that a Cluster allows. The waiter gets the lock under a larger token, the first holder's
// lease is lost, and the name stays usable.
func TestClusterOrders(t *testing.T) {
	t.Parallel()
	const ttl = 15 * time.Second
	for name, order := range map[string]func(o *clusterOperator){
		"reset soft": func(o *clusterOperator) {
			if _, err := o.do(o.owner, "CLUSTER", "RESET", "SOFT"); err == nil {
				o.t.Error("a server that has keys was reset")
			}
			o.must(o.owner, "FLUSHALL")
			o.must(o.owner, "CLUSTER", "RESET", "SOFT")
			o.forget()
		},
		"reset hard": func(o *clusterOperator) {
			o.must(o.owner, "FLUSHALL")
			o.must(o.owner, "CLUSTER", "RESET", "HARD")
			o.forget()
		},
		"forget": (*clusterOperator).forget,
		"set slot": func(o *clusterOperator) {
			if _, err := o.do(o.owner, "CLUSTER", "SETSLOT", o.slot, "NODE", o.ids[o.next]); err == nil {
				o.t.Error("a server that has keys of the slot gave it away")
			}
			// The epoch first: with an older one the next server gives the slot back at the owner's next
			// message.
			o.must(o.next, "CLUSTER", "BUMPEPOCH")
			o.must(o.next, "CLUSTER", "SETSLOT", o.slot, "NODE", o.ids[o.next])
		},
	} {
		if name != "set slot" && !testenv.Deep() {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := testenv.RedisCluster(t, testenv.ClusterSetup{NoReplicas: true})
			tag := tagOf(failoverLock)
			o := &clusterOperator{t: t, c: c, owner: c.Owner(tag, 0)}
			o.next = (o.owner + 1) % 3
			for _, s := range c.Servers {
				o.each = append(o.each, rawClient(t, s.Addr))
			}
			for i := range c.Servers {
				o.ids = append(o.ids, o.must(i, "CLUSTER", "MYID"))
			}
			slot, err := o.each[0].Do(t.Context(), o.each[0].B().ClusterKeyslot().Key(tag).Build()).ToInt64()
			if err != nil {
				t.Fatal(err)
			}
			o.slot = fmt.Sprint(slot)

			client := func() *holdfast.Client {
				b := redislock.New(dialURL(t, c.URL("")), nil)
				cl, err := holdfast.New(t.Context(), b, &holdfast.Config{TTL: ttl})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = errors.Join(cl.Close(context.Background()), b.Close()) })
				return cl
			}
			first, err := client().Mutex(failoverLock).Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			waits := client().Mutex(failoverLock)
			type grant struct {
				l   *holdfast.Lease
				err error
				at  time.Time
			}
			granted := make(chan grant, 1)
			go func() {
				l, err := waits.Lock(within(t, soon))
				granted <- grant{l, err, time.Now()}
			}()
			looks := client()
			until(t, "one waits", func() bool {
				info, err := looks.Inspect(t.Context(), failoverLock)
				return err == nil && info.Waiting == 1
			})
			order(o)
			begun := time.Now()
			var lost time.Time
			ended := first.Done()
			var g grant
			for lost.IsZero() || g.at.IsZero() {
				select {
				case <-ended:
					lost, ended = time.Now(), nil
				case g = <-granted:
				case <-time.After(soon):
					t.Fatalf("the holder lost its lease at %v, the waiter granted the lock at %v", lost, g.at)
				}
			}
			t.Logf("the holder lost its lease after %v (%v), the waiter was granted after %v, %v", lost.Sub(begun), first.Err(),
				g.at.Sub(begun), g.err)
			if g.err != nil {
				t.Fatal(g.err)
			}
			if g.l.Token() <= first.Token() {
				t.Errorf("token %d was granted after %d; want a larger one", g.l.Token(), first.Token())
			}
			if !errors.Is(first.Err(), holdfast.ErrLost) {
				t.Errorf("the first holder's error is %v; want ErrLost", first.Err())
			}
			if err := g.l.Release(); err != nil {
				t.Error(err)
			}
			again, err := client().Mutex(failoverLock).Lock(within(t, soon))
			if err != nil {
				t.Fatal(err)
			}
			if err := again.Release(); err != nil {
				t.Error(err)
			}
		})
	}
}
