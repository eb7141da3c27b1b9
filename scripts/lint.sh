#!/bin/sh
# Checks the code without running it.
set -eu
cd "$(dirname "$0")/.."
export GOFLAGS="${GOFLAGS:-} -buildvcs=false"
unformatted=$(gofmt -l .)
[ -z "$unformatted" ] || { echo "not gofmt'd: $unformatted" >&2; exit 1; }
for module in . cmd/holdfast bench interop; do
	go -C "$module" vet ./...
	go -C "$module" run honnef.co/go/tools/cmd/staticcheck@v0.8.2 ./...
done
go test ./internal/archtest
for os in darwin windows; do # the code of users must compile on other systems
	GOOS=$os CGO_ENABLED=0 go vet ./...
	GOOS=$os CGO_ENABLED=0 go -C cmd/holdfast build -o /dev/null ./...
done
if go run golang.org/x/vuln/cmd/govulncheck@v1.9.0 -version 2>&1 | grep -q '^DB:'; then
	for module in . cmd/holdfast; do
		go -C "$module" run golang.org/x/vuln/cmd/govulncheck@v1.9.0 ./...
	done
else
	echo "the vulnerability database cannot be reached: govulncheck is skipped"
fi
