#!/bin/sh
# Checks the code without running it.
set -eu
cd "$(dirname "$0")/.."
export GOFLAGS="${GOFLAGS:-} -buildvcs=false"
unformatted=$(gofmt -l .)
[ -z "$unformatted" ] || { echo "not gofmt'd: $unformatted" >&2; exit 1; }
modules="$(go list -m -f '{{.Dir}}')" # all that go.work lists
for module in $modules; do
	go -C "$module" vet ./...
	go -C "$module" run honnef.co/go/tools/cmd/staticcheck@v0.8.2 ./...
done
go test ./internal/archtest
scripts/tidy.sh -diff
for os in darwin windows; do # the code of users must compile on other systems
	for module in $modules; do
		case "$module" in
		*/bench | */interop) ;; # they are for developers
		*/cmd/holdfast) GOOS=$os CGO_ENABLED=0 go -C "$module" build -o /dev/null ./... ;;
		*) GOOS=$os CGO_ENABLED=0 go -C "$module" vet ./... ;;
		esac
	done
done
if go run golang.org/x/vuln/cmd/govulncheck@v1.9.0 -version 2>&1 | grep -q '^DB:'; then
	for module in . redislock/goredisconn otel prometheus cmd/holdfast; do # the last has the libraries of all others
		go -C "$module" run golang.org/x/vuln/cmd/govulncheck@v1.9.0 ./...
	done
else
	echo "the vulnerability database cannot be reached: govulncheck is skipped"
fi
