package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"
)

const cliRuns = 50

func cliScenarios() []scenario {
	return []scenario{{
		name: "cli", store: "sqlite",
		title: fmt.Sprintf("The command line: the time of `holdfast run x -- true`, compared with `true`, median of %d.",
			cliRuns),
		columns:  []column{dur("added", "added"), dur("with", "holdfast run"), dur("without", "true")},
		subjects: []subject{{"holdfast-cli", runCLI}},
	}}
}

// commandLine builds the command of the neighbouring folder, once.
func (b *testbed) commandLine(ctx context.Context) (path string, err error) {
	path = filepath.Join(b.dir, "holdfast")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	build := exec.CommandContext(ctx, "go", "build", "-C", "../cmd/holdfast", "-trimpath", "-o", path, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as the README builds it
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build ../cmd/holdfast: %w\n%s", err, out)
	}
	return path, nil
}

// runCLI runs the command on a store of its own, alternating with the bare program.
func runCLI(ctx context.Context, b *testbed) (metrics, error) {
	bin, err := b.commandLine(ctx)
	if err != nil {
		return nil, err
	}
	bare, err := exec.LookPath("true")
	if err != nil {
		return nil, err
	}
	state, err := os.MkdirTemp(b.dir, "cli-")
	if err != nil {
		return nil, err
	}
	run := func(args ...string) (time.Duration, error) {
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		cmd.Env = append(os.Environ(), "HOLDFAST_URL=sqlite:"+filepath.Join(state, "locks.db"))
		start := time.Now()
		out, err := cmd.CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%v: %w: %s", args, err, out)
		}
		return time.Since(start), err
	}
	var with, without []time.Duration
	for i := range cliRuns + 3 {
		w, err := run(bin, "run", "x", "--", bare)
		if err != nil {
			return nil, err
		}
		wo, err := run(bare)
		if err != nil {
			return nil, err
		}
		if i >= 3 { // the first runs create the store and fill the page cache
			with, without = append(with, w), append(without, wo)
		}
	}
	slices.Sort(with)
	slices.Sort(without)
	a, z := float64(with[cliRuns/2]), float64(without[cliRuns/2])
	return metrics{"with": a, "without": z, "added": a - z}, nil
}
