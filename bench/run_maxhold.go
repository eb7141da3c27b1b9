package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-lock/holdfast/internal/servers"
)

// maxHold is the length of the measured leases. It is shorter than the TTL.
const maxHold = 2 * time.Second

func maxHoldScenarios() []scenario {
	var all []scenario
	for _, sc := range []scenario{
		{store: "redis"}, {store: "quorum"}, {store: "sqlite"}, {store: "zookeeper", servers: 1},
		{store: mariaDB.store, sql: mariaDB}, {store: postgreSQL.store, sql: postgreSQL},
	} {
		sc.name = "maxhold/" + sc.store
		sc.title = fmt.Sprintf("A lease of %v (`holdfast run --lease %[1]v`) on %s: from its grant until the next holder's program has run.",
			maxHold, sc.store)
		sc.columns = []column{dur("alive", "holder alive"), dur("frozen", "frozen"), dur("killed", "killed")}
		sc.subjects = []subject{{"holdfast-cli", func(ctx context.Context, b *testbed) (metrics, error) {
			return runMaxHold(ctx, b, sc.store)
		}}}
		all = append(all, sc)
	}
	return all
}

// storeURL returns the URL of the store under test for the command line.
func (b *testbed) storeURL(store string) (string, error) {
	switch store {
	case "redis":
		return "redis://" + b.server.addr, nil
	case "quorum":
		return "redis+quorum://" + strings.Join(b.quorum.addrs(), ","), nil
	case "zookeeper":
		return "zookeeper://" + strings.Join(b.zk.addrs, ","), nil
	case mariaDB.store:
		return "mysql://root@" + b.sql.addr + "/test?tls=off", nil
	case postgreSQL.store:
		return "postgres://postgres@" + b.sql.addr + "/postgres?sslmode=disable", nil
	}
	dir, err := os.MkdirTemp(b.dir, "maxhold-")
	return "sqlite:" + filepath.Join(dir, "locks.db"), err
}

// runMaxHold lets a holder go on, freezes one, and kills one, each right after its grant.
func runMaxHold(ctx context.Context, b *testbed, store string) (metrics, error) {
	bin, err := b.commandLine(ctx)
	if err != nil {
		return nil, err
	}
	url, err := b.storeURL(store)
	if err != nil {
		return nil, err
	}
	program := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, bin, args...)
		cmd.Env = append(os.Environ(), "HOLDFAST_URL="+url)
		servers.Bind(cmd)
		return cmd
	}
	if out, err := program("init").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("init: %w\n%s", err, out)
	}
	m := metrics{}
	for what, signal := range map[string]syscall.Signal{"alive": 0, "frozen": syscall.SIGSTOP, "killed": syscall.SIGKILL} {
		name := fmt.Sprint("maxhold-", what, "-", time.Now().UnixNano())
		took, err := nextHolder(signal,
			program("run", "--lease", maxHold.String(), name, "--", "sh", "-c", "echo granted; exec sleep 60"),
			program("run", name, "--", "true"))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", what, err)
		}
		m[what] = float64(took)
	}
	return m, nil
}

// nextHolder starts holder and sends it signal as soon as it is granted the lock. It returns how
// long after that next, which waits for the same name, has ended.
func nextHolder(signal syscall.Signal, holder, next *exec.Cmd) (took time.Duration, err error) {
	var said bytes.Buffer
	holder.Stderr = &said
	out, err := holder.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := holder.Start(); err != nil {
		return 0, err
	}
	end := func() {
		_ = holder.Process.Kill()
		_ = holder.Wait() // it may have any exit code
	}
	defer end()
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		end()
		return 0, fmt.Errorf("the holder: %w\n%s", err, said.String())
	}
	granted := time.Now()
	if signal != 0 {
		if err := holder.Process.Signal(signal); err != nil {
			return 0, err
		}
	}
	text, err := next.CombinedOutput()
	if took = time.Since(granted); err != nil {
		return 0, fmt.Errorf("the next holder: %w\n%s", err, text)
	}
	return took, nil
}
