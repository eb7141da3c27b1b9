#!/bin/sh
# Runs every check of the repository on a machine that has Go, git and gcc: installs what
# the tests start (as root on Debian, by apt; else it says what to install), then vet,
# staticcheck, and the tests of all modules under the race detector.
set -eu
cd "$(dirname "$0")/.."
export GOFLAGS="${GOFLAGS:-} -buildvcs=false"

. scripts/install.sh

modules=". cmd/holdfast bench interop"
tools="$(mktemp -d)"
trap 'rm -rf "$tools"' EXIT
go build -o "$tools" ./internal/testrun
GOBIN="$tools" go install honnef.co/go/tools/cmd/staticcheck@v0.8.2
for module in $modules; do
	echo "== $module: vet, staticcheck"
	# As the tests are built, so that nothing is built twice.
	(cd "$module" && go vet -race ./... && GOFLAGS="$GOFLAGS -race" "$tools/staticcheck" ./...)
done

# Most tests wait for clocks and servers for some of their time, so packages run side by side.
# The race detector watches where goroutines of the library meet. These packages read text, or run programs.
# shellcheck disable=SC2086 # a list of words
"$tools/testrun" -jobs 4 -norace '/(model|bench|interop|cmd/holdfast/(lab|mutant)|internal/(archtest|doctest|testrun))$' \
	-flags "-race -vet=off -timeout 20m -parallel 4" $modules
