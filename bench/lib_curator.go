package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/internal/servers"
)

// Curator runs in a Java process, which has its own contest: see curator/.

const curatorName = "curator"

// curatorMissing returns why Curator cannot be built.
func curatorMissing() error {
	for _, tool := range []string{"mvn", "javac"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("it needs Maven and a JDK: %w", err)
		}
	}
	return nil
}

// buildCurator builds the program into a folder of dir, and returns its class path and Curator's
// version. Maven may have to download Curator.
func buildCurator(ctx context.Context, dir string) (classPath, version string, err error) {
	out := filepath.Join(dir, "curator")
	cmd := exec.CommandContext(ctx, "mvn", "-q", "-B", "-f", "curator/pom.xml", "-Dout="+out,
		"compiler:compile", "dependency:copy-dependencies", "-DoutputDirectory="+filepath.Join(out, "lib"))
	servers.Bind(cmd)
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", "", fmt.Errorf("building it: %w\n%s", err, text)
	}
	const jar = "curator-recipes-"
	found, err := filepath.Glob(filepath.Join(out, "lib", jar+"*.jar"))
	if err != nil || len(found) != 1 {
		return "", "", fmt.Errorf("building it: %d of %s*.jar in %s: %w", len(found), jar, out, err)
	}
	version = strings.TrimSuffix(strings.TrimPrefix(filepath.Base(found[0]), jar), ".jar")
	return filepath.Join(out, "classes") + ":" + filepath.Join(out, "lib", "*"), version, nil
}

// curatorFigures is the Java process's result; times are nanoseconds.
type curatorFigures struct {
	Members []struct {
		N, Self                 int
		Longest                 time.Duration
		Handovers, Waits, Pairs []time.Duration
	}
	Violations int64
	CPU        time.Duration
	Error      string
}

// runCurator has threads contend that share the given number of clients. A single one is measured
// as a pair.
func runCurator(ctx context.Context, b *testbed, clients, threads int) (m metrics, err error) {
	if b.curator == "" {
		return nil, errors.New("omitted: it was not built")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := exec.CommandContext(ctx, "java", "-Xmx1g", "-cp", b.curator, "Contend", strings.Join(b.zk.addrs, ","),
		strconv.FormatInt(b.zk.session().Milliseconds(), 10), b.root+"/curator/one", strconv.Itoa(clients),
		strconv.Itoa(threads))
	servers.Bind(cmd)
	var diag bytes.Buffer
	cmd.Stderr = &diag
	in, ierr := cmd.StdinPipe()
	out, oerr := cmd.StdoutPipe()
	if err := errors.Join(ierr, oerr, cmd.Start()); err != nil {
		return nil, err
	}
	f, before, after, err := measureCurator(ctx, b, in, bufio.NewReader(out))
	if err != nil {
		cancel() // it may wait for this process
	}
	if err = errors.Join(err, cmd.Wait()); err != nil {
		return nil, fmt.Errorf("%w: %s", err, diag.Bytes())
	}
	if f.Error != "" {
		return nil, errors.New(f.Error)
	}
	return f.metrics(before, after)
}

// measureCurator leads the process through its measurement.
func measureCurator(ctx context.Context, b *testbed, in io.WriteCloser, out *bufio.Reader) (
	f curatorFigures, before, after window, err error) {
	expect := func(want string) error {
		line, err := out.ReadString('\n')
		if err == nil && strings.TrimSpace(line) != want {
			err = fmt.Errorf("got %q instead of %q", line, want)
		}
		return err
	}
	say := func(line string) error { _, err := io.WriteString(in, line+"\n"); return err }

	if err = expect("ready"); err != nil {
		return
	}
	pause(ctx, max(b.warm, b.duration/5))
	if err = errors.Join(say("count"), expect("counting")); err != nil {
		return
	}
	if before, err = b.read(ctx, nil); err != nil { // this takes as long as the reading at the end
		return
	}
	pause(ctx, b.duration)
	if err = errors.Join(say("stop"), expect("stopped")); err != nil {
		return
	}
	if after, err = b.read(ctx, nil); err != nil {
		return
	}
	if err = say("end"); err != nil {
		return
	}
	err = json.NewDecoder(out).Decode(&f)
	return f, before, after, errors.Join(err, in.Close())
}

// metrics derives the metrics in the same way as for contenders in this process.
func (f *curatorFigures) metrics(before, after window) (metrics, error) {
	r := newContest(len(f.Members))
	r.violations.Store(f.Violations)
	var pairs hist
	for i, o := range f.Members {
		k := &r.participants[i]
		k.n, k.self, k.longest = o.N, o.Self, o.Longest
		for _, d := range o.Handovers {
			k.handover.Record(d)
		}
		for _, d := range o.Waits {
			k.wait.Record(d)
		}
		for _, d := range o.Pairs {
			pairs.Record(d)
		}
	}
	m := r.metrics()
	if m["n"] == 0 {
		return nil, errors.New("no contender got the lock")
	}
	if len(f.Members) == 1 {
		m.p50p99("", &pairs)
	}
	before.until(after, m["n"], m)
	m["cpu"] = float64(f.CPU) / m["n"]
	for _, ofThisProcess := range []string{"allocs", "bytes"} {
		delete(m, ofThisProcess)
	}
	return m, nil
}
