#!/bin/sh
# Runs the checks for a change, on a machine with Go, git and gcc: installs the programs that the
# tests start (as root on Debian with apt; otherwise it prints what to install), then runs the tests
# of all modules, and beside them vet, a build for 32 bits, the tests that a machine without servers
# skips, and staticcheck. scripts/deep.sh runs the long suites.
#
# shellcheck disable=SC2086 # some variables are lists of words
set -eu
cd "$(dirname "$0")/.."
# Without the paths of this checkout, so that all checkouts share the build cache.
export GOFLAGS="${GOFLAGS:-} -buildvcs=false -trimpath"
# The race detector leaves out SQLite, which is C translated to Go: with it SQLite takes eight times
# as long. This one package has no generic code and no locks of its own, so the detector sees
# everything else. A package with generic code must not be left out: the linker keeps one copy of
# such code for all packages, and the detector would miss what goes through it.
race="-race -gcflags=modernc.org/sqlite/lib=-race=false"
# Under the race detector a program sleeps for a second before it ends, because of goroutines that
# still run: goleak finds those.
export GORACE="${GORACE:-} atexit_sleep_ms=0"
# Collecting garbage less often takes a third of the processor time off vet and staticcheck. Near the
# second value, a soft limit, a process collects more often. It applies to the tests, too.
collect="${GOGC:-200}" # of the tests: the race detector adds twice the heap, and never gives it back
export GOGC="${GOGC:-400}" GOMEMLIMIT="${GOMEMLIMIT:-2GiB}"

. scripts/install.sh

modules="$(go list -m -f '{{.Dir}}')" # all that go.work lists
packages="$(go list -m -f '{{.Dir}}/...')"
tools="$(mktemp -d)"
checks=""
trap '[ -z "$checks" ] || kill "$checks" 2>/dev/null; rm -rf "$tools"' EXIT
CGO_ENABLED=0 go build -o "$tools" ./internal/testrun
echo "== build"
go list -export -test $race $packages >/dev/null # all that vet and the tests compile

# The checks of the code use the time in which tests wait for clocks and servers.
check() {
	status=0
	echo "== vet"
	go vet $race $packages || status=1 # with the flags of the tests, so nothing is built twice
	echo "== build for 32 bits"
	GOARCH=386 CGO_ENABLED=0 go build ./... || status=1 # the library
	echo "== -short, where tests need servers"
	CGO_ENABLED=0 go test -short -vet=off ./internal/testenv ./internal/zk ./zklock || status=1
	echo "== staticcheck"
	CGO_ENABLED=0 GOBIN="$tools" go install honnef.co/go/tools/cmd/staticcheck@v0.8.2 || return 1
	GOFLAGS="$GOFLAGS $race" "$tools/staticcheck" $packages || status=1
	return $status
}
check >"$tools/checks.log" 2>&1 &
checks=$!

# Packages run in parallel, since tests often wait for clocks and servers: four at a time, two while
# other programs use the machine, too, and six while a third of the processors' time is unused. The
# race detector runs where goroutines of the library share memory; the other packages read text, or
# run programs. Tests of steps send one request after another. Of the three models of the quorum,
# which share their sessions, TestModel has the detector. scripts/deep.sh runs all of them with it.
failed=0
GOGC="$collect" "$tools/testrun" -jobs 4 -more 2 \
	-norace '/(model|interop(/redisson)?|examples|cmd/holdfast(/(lab|mutant|internal/browser))?|internal/(archtest|doctest|testenv|testrun)|open|tests/(fence|release|testenv))$' \
	-steps '((redislock|mysql|postgres|sqlite)\.Test(SQLite)?(Aborted|Model|ModelCatches|TellsOnlyWhatIsWritten)|quorum\.TestModelOf(Leases|LateRequests))$' \
	-flags "$race -vet=off -timeout 20m -parallel 4" $modules || failed=1
wait "$checks" || failed=1
checks=""
cat "$tools/checks.log"
exit $failed
