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

// Curator and Redisson run in a Java process, which has its own contest: see java/.

const (
	curatorName  = "curator"
	redissonName = "redisson"
)

// javaProgram is the program in java/, when it is built.
type javaProgram struct {
	classPath         string // "": it is omitted
	curator, redisson string // their versions
}

// javaMissing returns why the program cannot be built.
func javaMissing() error {
	for _, tool := range []string{"mvn", "javac"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("it needs Maven and a JDK: %w", err)
		}
	}
	return nil
}

// buildJava builds the program into a folder of dir. Maven may have to download the libraries.
func buildJava(ctx context.Context, dir string) (p javaProgram, err error) {
	if !filepath.IsAbs(dir) { // Maven would build into the folder of its pom.xml
		return p, fmt.Errorf("building it: %q is no absolute path", dir)
	}
	out := filepath.Join(dir, "java")
	cmd := exec.CommandContext(ctx, "mvn", "-q", "-B", "-f", "java/pom.xml", "-Dout="+out,
		"compiler:compile", "dependency:copy-dependencies", "-DoutputDirectory="+filepath.Join(out, "lib"))
	servers.Bind(cmd)
	if text, err := cmd.CombinedOutput(); err != nil {
		return p, fmt.Errorf("building it: %w\n%s", err, text)
	}
	version := func(jar string) string {
		found, gerr := filepath.Glob(filepath.Join(out, "lib", jar+"[0-9]*.jar"))
		if gerr != nil || len(found) != 1 {
			err = fmt.Errorf("building it: %d of %s*.jar in %s: %w", len(found), jar, out, gerr)
			return ""
		}
		return strings.TrimSuffix(strings.TrimPrefix(filepath.Base(found[0]), jar), ".jar")
	}
	p = javaProgram{filepath.Join(out, "classes") + ":" + filepath.Join(out, "lib", "*"), version("curator-recipes-"),
		version("redisson-")}
	return p, err
}

// javaFigures is the Java process's result; times are nanoseconds.
type javaFigures struct {
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
func runCurator(ctx context.Context, b *testbed, clients, threads int) (metrics, error) {
	return runJava(ctx, b, clients, threads, curatorName, strings.Join(b.zk.addrs, ","),
		strconv.FormatInt(b.zk.session().Milliseconds(), 10), b.root+"/curator/one")
}

// runRedisson is runCurator with Redisson's RLock.
func runRedisson(ctx context.Context, b *testbed, clients, threads int) (metrics, error) {
	return runJava(ctx, b, clients, threads, redissonName, b.server.addr, "0", "one")
}

// runJava runs the program, whose arguments begin with what.
func runJava(ctx context.Context, b *testbed, clients, threads int, what ...string) (m metrics, err error) {
	if b.java.classPath == "" {
		return nil, errors.New("omitted: it was not built")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	args := append([]string{"-Xmx1g", "-cp", b.java.classPath, "Contend"}, what...)
	cmd := exec.CommandContext(ctx, "java", append(args, strconv.Itoa(clients), strconv.Itoa(threads))...)
	servers.Bind(cmd)
	var diag bytes.Buffer
	cmd.Stderr = &diag
	in, ierr := cmd.StdinPipe()
	out, oerr := cmd.StdoutPipe()
	if err := errors.Join(ierr, oerr, cmd.Start()); err != nil {
		return nil, err
	}
	f, before, after, err := measureJava(ctx, b, in, bufio.NewReader(out))
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

// measureJava leads the process through its measurement.
func measureJava(ctx context.Context, b *testbed, in io.WriteCloser, out *bufio.Reader) (
	f javaFigures, before, after window, err error) {
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
func (f *javaFigures) metrics(before, after window) (metrics, error) {
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
		return nil, errNobody
	}
	if len(f.Members) == 1 {
		m.p50p99("", &pairs)
	}
	before.until(after, m["n"], m)
	m["cpu"] = float64(f.CPU) / m["n"]
	for _, ofThisProcess := range []string{"allocs", "bytes", "sent"} {
		delete(m, ofThisProcess)
	}
	return m, nil
}
