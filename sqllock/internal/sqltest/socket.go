package sqltest

import (
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/drivertest"
	"github.com/holdfast-lock/holdfast/internal/hook"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/sqllock"
	"github.com/holdfast-lock/holdfast/sqllock/internal/host"
	"github.com/holdfast-lock/holdfast/sqllock/internal/samehost"
)

// Pushed are the checks of drivertest whose waiters depend on pushes. They run with sockets, and
// through the server alone.
var Pushed = []string{
	"handed over", "arrival order", "readers and a writer", "latch push lost", "lost push", "cut and healed",
	"forgotten connections", "dead waiter", "cancel races", "passed over while cut off",
	"passed over while answers are lost", "passed over on a forgotten connection", "cancelled while handed over",
	"pushes for nobody", "pushes for requests", "pushes before the answer", "pushes for latches",
	"answer to release lost", "a push that is believed", "client dies",
}

// SocketOf returns the socket of a Server.
func SocketOf(b *sqllock.Server) *samehost.Socket { return hook.SQLSocket(b).(*samehost.Socket) }

// SocketsIn moves the sockets of Servers that have not been used yet to another folder.
func SocketsIn(dir string, servers ...*sqllock.Server) {
	for _, b := range servers {
		hook.SQLSocketIn(b, dir)
	}
}

// Conn is a Server whose network is the proxy. The faults reach its socket, too: that of a killed
// process is dead, and one that is cut off or forgotten hears nothing and does not know.
func Conn(b *sqllock.Server, proxy *testenv.TCPProxy) drivertest.Conn {
	mute := func() { SocketOf(b).Mute(true) }
	heal := func() {
		SocketOf(b).Mute(false)
		proxy.Heal()
	}
	return drivertest.Conn{
		Backend:     b,
		Kill:        func() { proxy.Refuse(); _ = SocketOf(b).Drop() },
		Cut:         func() func() { mute(); proxy.Hole(); return heal },
		DropReplies: func() func() { mute(); proxy.DropReplies(); return heal },
		Hold:        proxy.Hold,
		Forget:      func() { mute(); proxy.Forget() },
	}
}

// Forge sends messages to the socket of a Server, as any process of its user can: one by one, and
// then all together. A Server of the same kind listens there, or has listened.
func Forge(t testing.TB, kind, server string, messages ...string) {
	t.Helper()
	n, err := host.NewNotifier()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = n.Close() }()
	path := samehost.Dir() + "/" + kind + "-" + server
	send := func(m string) {
		err := n.Notify(path, []byte(m))
		for end := time.Now().Add(time.Minute); full(err) && time.Now().Before(end); {
			time.Sleep(10 * time.Microsecond)
			err = n.Notify(path, []byte(m))
		}
		if err != nil {
			t.Fatalf("forging through %s: %v", path, err)
		}
	}
	var packet strings.Builder // as many lines as fit
	for _, m := range messages {
		m = m[:min(len(m), 1<<16)] // a datagram cannot be longer
		send(m + "\n")
		if packet.Len()+len(m) >= samehost.MaxMessage {
			send(packet.String())
			packet.Reset()
		}
		packet.WriteString(m + "\n")
	}
	send(packet.String())
}

// full reports that a socket has no room now.
func full(err error) bool { return errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.ENOBUFS) }
