// Command verdicts runs "holdfast verify --worker" for several locks, each under each kind of fault,
// and prints the tables of docs/verdicts.md. It needs redis-server, and for Redisson a JDK and Maven:
//
//	go run -C bench ./verdicts
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

var (
	seed     = flag.Uint64("seed", 1, "of the schedule of faults")
	duration = flag.Duration("duration", 10*time.Second, "of each run")
	slack    = flag.Duration("slack", 8*time.Second, "see holdfast verify --slack")
	locks    = flag.String("locks", "setnx,redsync,redislock,redisson,holdfast", "which locks")
	faults   = flag.String("faults", "stop,kill,delay,cut,cut-requests,cut-replies,forget,late,reset,refuse,drop-replies",
		"which kinds of faults")
)

func main() {
	flag.Parse()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "verdicts:", err)
		os.Exit(1)
	}
}

// report is what is read of the JSON of verify.
type report struct {
	Outcome, Worker string
	Grants          int
	Classes         []struct {
		Class      string
		Count      int
		Doubts     []string
		NotChecked string `json:"not_checked"`
	}
	Notes []string
}

// lock is a column of the table.
type lock struct {
	name, command string
	worker        string
	cells         []string
	grants        int
	unchecked     map[string]int // how many runs did not check a class
}

func run() error {
	dir, err := os.MkdirTemp("", "verdicts-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	url, stop, err := startRedis(dir)
	if err != nil {
		return err
	}
	defer stop()
	holdfast := filepath.Join(dir, "holdfast")
	if err := command("go", "build", "-C", "../cmd/holdfast", "-o", holdfast, "."); err != nil {
		return err
	}
	var all []*lock
	for name := range strings.SplitSeq(*locks, ",") {
		line, err := build(name, dir)
		if err != nil {
			fmt.Fprintf(os.Stderr, "without %s: %v\n", name, err)
			continue
		}
		all = append(all, &lock{name: name, command: line, unchecked: map[string]int{}})
	}
	kinds := strings.Split(*faults, ",")
	for _, l := range all {
		for _, kind := range kinds {
			r, err := verify(holdfast, url, l.command, kind, *duration)
			if err == nil && r.Outcome == "inconclusive" { // a slow start left too little time
				r, err = verify(holdfast, url, l.command, kind, 3**duration)
			}
			if err != nil {
				return fmt.Errorf("%s, %s: %w", l.name, kind, err)
			}
			l.add(r)
			fmt.Fprintf(os.Stderr, "%s, %s: %s, %d grants\n", l.name, kind, l.cells[len(l.cells)-1], r.Grants)
		}
	}
	tables(all, kinds)
	return nil
}

func (l *lock) add(r *report) {
	l.worker, _, _ = strings.Cut(r.Worker, ",")
	l.grants += r.Grants
	var found []string
	for _, c := range r.Classes {
		if c.Count > 0 {
			found = append(found, fmt.Sprintf("**%s** %d", c.Class, c.Count))
		}
		if c.NotChecked != "" {
			l.unchecked[c.Class]++
		}
		for _, d := range c.Doubts {
			fmt.Fprintf(os.Stderr, "  %s: %s\n", c.Class, d)
		}
	}
	for _, n := range r.Notes {
		fmt.Fprintf(os.Stderr, "  note: %s\n", n)
	}
	cell := r.Outcome
	if len(found) > 0 {
		cell = strings.Join(found, ", ")
	}
	l.cells = append(l.cells, cell)
}

// tables prints what docs/verdicts.md has.
func tables(all []*lock, kinds []string) {
	head, rule := "| fault |", "|---|"
	for _, l := range all {
		head, rule = head+" "+l.worker+" |", rule+"---|"
	}
	fmt.Printf("Seed %d, runs of %v (three times that, after one with too few grants), slack %v.\n\n%s\n%s\n",
		*seed, *duration, *slack, head, rule)
	for i, kind := range kinds {
		fmt.Printf("| `%s` |", kind)
		for _, l := range all {
			fmt.Printf(" %s |", l.cells[i])
		}
		fmt.Println()
	}
	fmt.Printf("\n| lock | grants | classes that no run checked |\n|---|---|---|\n")
	for _, l := range all {
		var never []string
		for class, n := range l.unchecked {
			if n == len(kinds) {
				never = append(never, class)
			}
		}
		slices.Sort(never)
		fmt.Printf("| %s | %d | %s |\n", l.worker, l.grants, strings.Join(never, ", "))
	}
}

// verify runs one lock under one kind of fault.
func verify(holdfast, url, worker, kind string, duration time.Duration) (*report, error) {
	cmd := exec.Command(holdfast, "verify", "--json", "--store", url, "--worker", worker, "--faults", kind,
		"--processes", "3", "--pause", "20ms", "--seed", fmt.Sprint(*seed), "--duration", duration.String(),
		"--slack", slack.String())
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() > 2) {
		return nil, fmt.Errorf("%w: %s", err, stderr.String())
	}
	r := &report{}
	return r, json.Unmarshal(out, r)
}

// build returns the command line of a worker.
func build(name, dir string) (string, error) {
	if name == "redisson" {
		folder, err := filepath.Abs("../interop/redisson")
		if err != nil {
			return "", err
		}
		if err := command("mvn", "--batch-mode", "--quiet", "-f", folder, "package"); err != nil {
			return "", err
		}
		return fmt.Sprintf("exec java -Xmx128m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 "+
			"-cp '%[1]s/worker.jar:%[1]s/lib/*' worker.Main",
			filepath.Join(folder, "target")), nil
	}
	path := filepath.Join(dir, "worker-"+name)
	return "exec " + path, command("go", "build", "-o", path, "./workers/"+name)
}

func command(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, out)
	}
	return nil
}

// startRedis starts a server that keeps nothing.
func startRedis(dir string) (url string, stop func(), err error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	addr := ln.Addr().String()
	_, port, _ := net.SplitHostPort(addr)
	_ = ln.Close()
	cmd := exec.Command("redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", dir)
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	stop = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if c, err := net.Dial("tcp", addr); err == nil {
			_ = c.Close()
			return "redis://" + addr, stop, nil
		}
	}
	stop()
	return "", nil, errors.New("redis-server does not answer")
}
