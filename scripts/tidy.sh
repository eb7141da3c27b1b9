#!/bin/sh
# tidy.sh [-diff]: runs "go mod tidy" in each module. The modules of this repository come from a
# proxy that is made from this tree, since the versions that they ask for need not exist yet.
# With -diff it changes nothing, and fails if a go.mod or go.sum is not tidy.
set -eu
cd "$(dirname "$0")/.."
dir="$(mktemp -d)"
trap 'chmod -R u+w "$dir"; rm -rf "$dir"' EXIT
go build -C tests -o "$dir/modproxy" ./modproxy
version="$(sed -n 's/^\tgithub.com\/holdfast-lock\/holdfast \(v[^ ]*\).*/\1/p' open/go.mod)"
"$dir/modproxy" "$dir/proxy" "$version"
# A module cache of its own: this version of our modules is not the released one.
GOPROXY="file://$dir/proxy,file://$(go env GOMODCACHE)/cache/download,$(go env GOPROXY)"
GONOSUMDB="github.com/holdfast-lock/*,$(go env GONOSUMDB)"
export GOPROXY GONOSUMDB GOMODCACHE="$dir/cache" GOWORK=off GOFLAGS=
git ls-files --cached --others --exclude-standard '*go.mod' | while read -r file; do
	module="$(dirname "$file")"
	# What is in this repository has no checksums before its release, and go.work needs none.
	cp -r "$module/go.mod" "$dir/go.mod"
	cp "$module/go.sum" "$dir/go.sum"
	go -C "$module" mod tidy
	sed -i '/^github.com\/holdfast-lock\/holdfast/d' "$module/go.sum"
	if [ "${1:-}" = -diff ] && ! { diff -u "$dir/go.mod" "$module/go.mod" && diff -u "$dir/go.sum" "$module/go.sum"; }; then
		cp "$dir/go.mod" "$dir/go.sum" "$module"
		echo "$module is not tidy: run scripts/tidy.sh" >&2
		exit 1
	fi
done
