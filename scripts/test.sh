#!/bin/sh
# Runs the checks for a change, on a machine with Go, git and gcc: installs the programs that the
# tests start (as root on Debian with apt; otherwise it prints what to install), then runs vet,
# staticcheck, and the tests of all modules. scripts/deep.sh runs the long suites.
set -eu
cd "$(dirname "$0")/.."
# The race detector leaves out SQLite, which is C translated to Go: with it SQLite takes eight times
# as long. This one package has no generic code and no locks of its own, so the detector sees
# everything else. A package with generic code must not be left out: the linker keeps one copy of
# such code for all packages, and the detector would miss what goes through it.
export GOFLAGS="${GOFLAGS:-} -buildvcs=false -gcflags=modernc.org/sqlite/lib=-race=false"
# Under the race detector a program sleeps for a second before it ends, because of goroutines that
# still run: goleak finds those.
export GORACE="${GORACE:-} atexit_sleep_ms=0"
# Collecting garbage less often takes a third of the processor time off vet and staticcheck. The
# second value bounds the memory of each process.
export GOGC="${GOGC:-400}" GOMEMLIMIT="${GOMEMLIMIT:-2GiB}"

. scripts/install.sh

modules="$(go list -m -f '{{.Dir}}')" # all that go.work lists
tools="$(mktemp -d)"
linter=""
trap '[ -z "$linter" ] || kill "$linter" 2>/dev/null; rm -rf "$tools"' EXIT
go build -o "$tools" ./internal/testrun
GOBIN="$tools" go install honnef.co/go/tools/cmd/staticcheck@v0.8.2
for module in $modules; do
	echo "== $module: vet"
	(cd "$module" && go vet -race ./...) # with the flags of the tests, so nothing is built twice
done
(
	status=0
	for module in $modules; do
		(cd "$module" && GOFLAGS="$GOFLAGS -race" "$tools/staticcheck" ./...) || status=1
	done
	exit $status
) >"$tools/staticcheck.log" 2>&1 &
linter=$!

# Packages run in parallel, since tests often wait for clocks and servers. The race detector runs
# where goroutines of the library share memory; the other packages read text, or run programs.
failed=0
# shellcheck disable=SC2086 # a list of words
"$tools/testrun" -jobs 4 \
	-norace '/(model|interop|examples|cmd/holdfast(/(lab|mutant))?|internal/(archtest|doctest|testenv|testrun)|open|tests/(fence|release|testenv))$' \
	-flags "-race -vet=off -timeout 20m -parallel 4" $modules || failed=1
echo "== staticcheck"
wait "$linter" || failed=1
cat "$tools/staticcheck.log"
linter=""
exit $failed
