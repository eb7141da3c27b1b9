#!/bin/sh
# Runs the long suites for about so many minutes (60 unless it is told): torture, reliability,
# mutants, models at larger sizes, soak, fuzz, and every test at its full size. It spends the
# minutes where they find most, prints a table, and adds it to docs/reliability.md.
set -eu
cd "$(dirname "$0")/.."
# SQLite is C that was translated to Go: under the race detector it takes five times as long, and
# it has nothing of ours in it. Everything else is watched.
export GOFLAGS="${GOFLAGS:-} -buildvcs=false -gcflags=modernc.org/...=-race=false"
minutes="${1:-60}"
. scripts/install.sh
go run ./internal/testrun -deep "$minutes" docs/reliability.md
