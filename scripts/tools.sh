#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Installs what tests start, into ${VARVE_TOOLS:-$HOME/.cache/varve-tools}/bin: S3 servers, and the tool that restores a snapshot
# of etcd. They run as separate processes and are no part of Varve. A binary that is there in the wanted version is kept. Prints
# nothing when there is nothing to do.
#
#   scripts/tools.sh [versitygw] [minio] [etcdutl]    these; without any, all of them
set -eu

bin="${VARVE_TOOLS:-$HOME/.cache/varve-tools}/bin"

# absent BINARY MODULE VERSION: it is not there in that version, and is announced.
absent() {
	if [ -x "$bin/$1" ] && go version -m "$bin/$1" 2>/dev/null | awk -v m="$2" -v v="$3" \
		'$1 == "mod" && $2 == m && $3 == v { found = 1 } END { exit !found }'; then
		return 1
	fi
	echo "installing $2@$3 into $bin (once; it is compiled here, which may take minutes)" >&2
	mkdir -p "$bin"
}

# install MODULE PACKAGE VERSION: the binary is called like the last element of the package's path.
install() {
	! absent "${2##*/}" "$1" "$3" || GOBIN="$bin" GOFLAGS= go install "$2@$3"
}

# install_within BINARY MODULE VERSION: for a module with replace directives, which `go install` refuses. As a dependency of a
# module of its own they do not count.
install_within() {
	! absent "$1" "$2" "$3" || (
		dir=$(mktemp -d)
		trap 'rm -rf "$dir"' EXIT
		cd "$dir"
		export GOFLAGS= GOWORK=off
		go mod init tool 2>/dev/null
		go get "$2@$3" 2>/dev/null || go get "$2@$3" # once more for the message
		go build -o "$bin/$1" "$2"
	)
}

[ $# -gt 0 ] || set -- versitygw minio etcdutl
for tool; do
	case $tool in
		versitygw) install github.com/versity/versitygw github.com/versity/versitygw/cmd/versitygw v1.8.0 ;;
		minio) install github.com/minio/minio github.com/minio/minio v0.0.0-20260212201848-7aac2a2c5b7c ;;
		etcdutl) install_within etcdutl go.etcd.io/etcd/etcdutl/v3 v3.7.3 ;;
		*) echo "scripts/tools.sh: no tool $tool; there is versitygw, minio, etcdutl" >&2; exit 2 ;;
	esac
done
