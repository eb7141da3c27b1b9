package zklock_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/internal/zk"
	"github.com/holdfast-lock/holdfast/zklock"
)

// A change of the node in front hands the lock over. So only its holder may change the node. If the
// servers do not enforce that, waiters ignore a change.
func TestSealedNodes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		setting string
		holds   bool // the servers protect sealed nodes
	}{
		{"ACLs enforced", longSessions, true},
		{"ACLs not enforced", "-Dzookeeper.skipACL=yes", false},
		{"digest switched off", "-Dzookeeper.DigestAuthenticationProvider.enabled=false", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			server := testenv.ZooKeeper(t, longSessions, c.setting)
			z := newTree(t, server.Addr)
			a, b, d := newPeer(t, on(server.Addr)), newPeer(t, on(server.Addr)), newPeer(t, on(server.Addr))
			h := a.get(a.req("x"))
			rb, rd := b.req("x"), d.req("x")
			wb, wd := b.refused(rb), d.refused(rd)
			until(t, "it was tried out", func() bool { known, _ := zklock.Sealed(d.Session); return known })
			if _, holds := zklock.Sealed(d.Session); holds != c.holds {
				t.Fatalf("sealed: %v; want %v", holds, c.holds)
			}
			// As Curator's Revoker does: a change of a waiter's node is no hand-over.
			for _, name := range z.children("/holdfast/x") {
				_, err := z.Set(within(t), "/holdfast/x/"+name, []byte("__REVOKE__"), zk.AnyVersion)
				if c.holds {
					wants(t, "another client's change", err, zk.ErrNoAuth)
				} else {
					wants(t, "another client's change", err, nil)
				}
			}
			select {
			case token := <-wb.Wake:
				t.Fatalf("woken with token %d during the hold", token)
			case token := <-wd.Wake:
				t.Fatalf("woken with %d behind a waiter", token)
			case <-time.After(300 * time.Millisecond):
			}
			a.release(h)
			hb := b.woken(rb, wb)
			b.release(hb)
			d.release(d.woken(rd, wd))
		})
	}
}

// A test of the ACLs that was never sent shows nothing: the next one decides.
func TestUnsentACLTest(t *testing.T) {
	t.Parallel()
	_, cfg := common(t)
	p := newPeer(t, cfg)
	p.get(p.req("x"))
	over, cancel := context.WithCancel(t.Context())
	cancel()
	zklock.TryACLs(over, p.Session, cfg.Root+"/x")
	if known, holds := zklock.Sealed(p.Session); known {
		t.Errorf("a test that was not sent has a result: %v", holds)
	}
	until(t, "it was tried out", func() bool {
		zklock.TryACLs(within(t), p.Session, cfg.Root+"/x")
		known, _ := zklock.Sealed(p.Session)
		return known
	})
	if _, holds := zklock.Sealed(p.Session); !holds {
		t.Error("the servers enforce ACLs, and the session does not know")
	}
}
