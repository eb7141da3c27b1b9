#!/bin/sh
# Runs the long suites for about so many minutes (60 unless it is told): torture, reliability,
# mutants, models at larger sizes, soak, fuzz, and every test at its full size. It spends the
# minutes where they find most, prints a table, and adds it to docs/reliability.md.
set -eu
cd "$(dirname "$0")/.."
# SQLite is C that was translated to Go: under the race detector it takes eight times as long. This
# one package has no generic code and no locks of its own, so that nothing else loses what the
# detector knows of it. A package that has generic code must not be left out: the linker keeps one
# copy of such code for all, and the detector would miss what goes through it.
export GOFLAGS="${GOFLAGS:-} -buildvcs=false -gcflags=modernc.org/sqlite/lib=-race=false"
minutes="${1:-60}"
. scripts/install.sh
go run ./internal/testrun -deep "$minutes" docs/reliability.md
