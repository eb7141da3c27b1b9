#!/bin/sh
# release.sh VERSION: makes the files of a release in the folder dist, which must not exist. The tree
# must be committed, and its go.mod files must ask for VERSION.
#
# A release: set VERSION in go.work and the go.mod files, and in CHANGELOG.md; commit; run this; tag
# the commit for each module (VERSION, open/VERSION, …) and push the tags.
set -eu
cd "$(dirname "$0")/.."
[ $# = 1 ] || { echo "usage: scripts/release.sh VERSION" >&2; exit 2; }
go build -C tests -o ../bin/release ./release
exec bin/release "$1" dist
