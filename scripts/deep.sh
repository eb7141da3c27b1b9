#!/bin/sh
# deep.sh [MINUTES [SUITE...]]: runs the long suites, or those that are named, for about MINUTES (60
# by default): torture, reliability, mutants, models at larger sizes, soak, fuzz, and every test at
# its full size. The most valuable suites come first. It prints a table, and adds it to
# docs/reliability.md.
set -eu
cd "$(dirname "$0")/.."
# The race detector leaves out SQLite, which is C translated to Go: with it SQLite takes eight times
# as long. This one package has no generic code and no locks of its own, so the detector sees
# everything else. A package with generic code must not be left out: the linker keeps one copy of
# such code for all packages, and the detector would miss what goes through it.
export GOFLAGS="${GOFLAGS:-} -buildvcs=false -gcflags=modernc.org/sqlite/lib=-race=false"
minutes="${1:-60}"
[ $# -eq 0 ] || shift
. scripts/install.sh
go run ./internal/testrun -deep "$minutes" docs/reliability.md "$@"
