#!/bin/sh
# Runs what guards a change, on a machine that has Go, git and gcc: installs what the tests
# start (as root on Debian, by apt; else it says what to install), then vet, staticcheck, and the
# tests of all modules. scripts/deep.sh runs the long suites.
set -eu
cd "$(dirname "$0")/.."
# SQLite is C that was translated to Go: under the race detector it takes eight times as long. This
# one package has no generic code and no locks of its own, so that nothing else loses what the
# detector knows of it. A package that has generic code must not be left out: the linker keeps one
# copy of such code for all, and the detector would miss what goes through it.
export GOFLAGS="${GOFLAGS:-} -buildvcs=false -gcflags=modernc.org/sqlite/lib=-race=false"
# A program that the race detector watches would sleep for a second before it ends, for goroutines
# that go on: goleak looks for those.
export GORACE="${GORACE:-} atexit_sleep_ms=0"

. scripts/install.sh

modules=". cmd/holdfast bench interop"
tools="$(mktemp -d)"
linter=""
trap '[ -z "$linter" ] || kill "$linter" 2>/dev/null; rm -rf "$tools"' EXIT
go build -o "$tools" ./internal/testrun
GOBIN="$tools" go install honnef.co/go/tools/cmd/staticcheck@v0.8.2
for module in $modules; do
	echo "== $module: vet"
	(cd "$module" && go vet -race ./...) # as the tests are built, so that nothing is built twice
done
(
	status=0
	for module in $modules; do
		(cd "$module" && GOFLAGS="$GOFLAGS -race" "$tools/staticcheck" ./...) || status=1
	done
	exit $status
) >"$tools/staticcheck.log" 2>&1 &
linter=$!

# Packages run side by side: for some of their time tests wait for clocks and servers. The race
# detector watches where goroutines of the library meet; other packages read text, or run programs.
failed=0
# shellcheck disable=SC2086 # a list of words
"$tools/testrun" -jobs 4 \
	-norace '/(model|interop|cmd/holdfast(/(lab|mutant))?|internal/(archtest|doctest|testrun))$' \
	-flags "-race -vet=off -timeout 20m -parallel 4" $modules || failed=1
echo "== staticcheck"
wait "$linter" || failed=1
cat "$tools/staticcheck.log"
linter=""
exit $failed
