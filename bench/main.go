// Command bench compares holdfast with other lock libraries of its stores, on servers that it
// starts itself, and prints a table for each scenario.
//
//	go run -C bench . -rounds 5 -duration 3s -json result.json
//
// README.md explains the columns, and which comparisons are unfair to which library.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"runtime/pprof"
	"slices"
	"syscall"
	"time"
)

// settings is the parsed command line.
type settings struct {
	scenarios *regexp.Regexp
	libraries *regexp.Regexp
	duration  time.Duration
	held      time.Duration
	warm      time.Duration
	rounds    int
	json      string
	store     string
	check     bool
	profile   string
}

func parse() (settings, error) {
	var s settings
	scenarios := flag.String("scenario", "", "run only scenarios that match this `regexp`, such as 'pair|one/128'")
	libraries := flag.String("libs", "", "run only libraries that match this `regexp`")
	flag.DurationVar(&s.duration, "duration", 3*time.Second, "length of each measurement")
	flag.DurationVar(&s.held, "held", 21*time.Second,
		"length of the measurement with 10,000 held leases; two renewals are 20 s")
	flag.DurationVar(&s.warm, "warm", 10*time.Second, "how long each Java process runs under load before it is measured")
	flag.IntVar(&s.rounds, "rounds", 3, "how often each measurement is repeated; the tables show medians")
	flag.StringVar(&s.json, "json", "", "write all figures of all rounds to this `file`")
	flag.StringVar(&s.store, "store", "all",
		"redis, quorum (of Redis servers), sqlite, zookeeper, mysql (with MariaDB), postgres or all")
	flag.BoolVar(&s.check, "check", false, "compare with the targets; exit 1 if one is missed")
	flag.StringVar(&s.profile, "cpuprofile", "", "write a CPU profile of this process to this `file`")
	flag.Parse()
	if flag.NArg() > 0 {
		return s, fmt.Errorf("unexpected argument %q", flag.Arg(0))
	}
	if s.duration < 100*time.Millisecond || s.held < time.Second || s.warm < 0 || s.rounds < 1 {
		return s, fmt.Errorf("-duration must be at least 100ms, -held at least 1s, -warm at least 0, -rounds at least 1")
	}
	if !slices.Contains([]string{"redis", "quorum", "sqlite", "zookeeper", "mysql", "postgres", "all"}, s.store) {
		return s, fmt.Errorf("-store %q: allowed are redis, quorum, sqlite, zookeeper, mysql, postgres and all", s.store)
	}
	var err error
	if s.scenarios, err = regexp.Compile(*scenarios); err != nil {
		return s, fmt.Errorf("-scenario: %w", err)
	}
	if s.libraries, err = regexp.Compile(*libraries); err != nil {
		return s, fmt.Errorf("-libs: %w", err)
	}
	return s, nil
}

func main() {
	if job := os.Getenv(workerEnv); job != "" {
		exit(runWorker(job))
	}
	s, err := parse()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	exit(run(ctx, s))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func run(ctx context.Context, s settings) error {
	if s.profile != "" {
		f, err := os.Create(s.profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	b := &testbed{duration: s.duration, held: s.held, warm: s.warm, rounds: s.rounds}
	if s.store == "redis" || s.store == "all" {
		srv, err := startServer(ctx)
		if err != nil {
			return err
		}
		defer srv.stop()
		b.server = srv
	}
	dir, err := os.MkdirTemp("", "holdfast-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b.dir = dir

	rep := newReport(s, b)
	chosen, err := s.choose(ctx, b, rep)
	if err != nil {
		return err
	}
	defer b.noZooKeeper()
	defer b.noSQL()
	defer b.noQuorum()
	for _, sc := range chosen {
		if err := b.prepare(ctx, sc); err != nil {
			return err
		}
		rep.note(b)
		res, err := measure(ctx, b, sc, s.libraries)
		if err != nil {
			return err
		}
		rep.Results = append(rep.Results, res)
		res.print(os.Stdout)
	}
	rep.Finished = time.Now()
	if s.json != "" {
		if err := rep.write(s.json); err != nil {
			return err
		}
	}
	if bad := rep.violations(); bad > 0 {
		return fmt.Errorf("%d violations of mutual exclusion: the figures above are invalid", bad)
	}
	if s.check && rep.check(os.Stdout) > 0 {
		return fmt.Errorf("targets missed")
	}
	return nil
}

// choose returns the scenarios to measure, and builds the libraries in Java. It omits the scenarios
// of a missing server, unless they were requested by name.
func (s settings) choose(ctx context.Context, b *testbed, rep *report) ([]scenario, error) {
	chosen := slices.DeleteFunc(scenarios(), func(sc scenario) bool {
		return !s.scenarios.MatchString(sc.name) || s.store != "all" && sc.store != s.store && sc.store != "any"
	})
	for _, k := range sqlKinds {
		ofIt := func(sc scenario) bool { return sc.sql == k }
		if err := k.missing(); err != nil && slices.ContainsFunc(chosen, ofIt) {
			if s.store == k.store {
				return nil, err
			}
			fmt.Fprintf(os.Stderr, "the %s scenarios are omitted: %v\n", k.what, err)
			chosen = slices.DeleteFunc(chosen, ofIt)
		}
	}
	ofZooKeeper := func(sc scenario) bool { return sc.store == "zookeeper" }
	if err := zooKeeperMissing(); err != nil && slices.ContainsFunc(chosen, ofZooKeeper) {
		if s.store == "zookeeper" {
			return nil, err
		}
		fmt.Fprintf(os.Stderr, "the ZooKeeper scenarios are omitted: %v\n", err)
		chosen = slices.DeleteFunc(chosen, ofZooKeeper)
	}
	inJava := func(x subject) bool {
		return (x.name == curatorName || x.name == redissonName) && s.libraries.MatchString(x.name)
	}
	if !slices.ContainsFunc(chosen, func(sc scenario) bool { return slices.ContainsFunc(sc.subjects, inJava) }) {
		return chosen, nil
	}
	err := javaMissing()
	if err == nil {
		b.java, err = buildJava(ctx, b.dir)
		rep.Curator, rep.Redisson = b.java.curator, b.java.redisson
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "the libraries in Java are omitted: %v\n", err)
	}
	return chosen, ctx.Err()
}
