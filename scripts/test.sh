#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# What `make test` runs, in stages:
#
#   scripts/test.sh                  all stages
#   scripts/test.sh lint unit …      only these: lint unit race conformance simulation integration chaos
#
# VARVE_REQUIRE_TOOLS=1  a tool that a test needs and that cannot be had is a failure instead of a skip with a reason
# VARVE_TIMES=FILE       append "row<TAB>seconds" per stage, for the budget of .ci/run
set -euo pipefail
cd "$(dirname "$0")/.."

# Like the binary that is shipped, and without a C library to compile. Only the race detector needs cgo.
export CGO_ENABLED=0

stages=("$@")
[ ${#stages[@]} -gt 0 ] || stages=(lint unit race conformance simulation integration chaos)

say() { printf '\n== %s\n' "$*" >&2; }

# Packages whose tests are a stage of their own.
is_conformance() { case $1 in */tiering/objstore*|*/metadata|*/metadata/etcd*|*/metadata/memory*|*/metadata/metadatatest*|*/broker/hotlog*) return 0 ;; esac; return 1; }
is_integration() { case $1 in */integration|*/integration/*) return 0 ;; esac; return 1; }
is_chaos() { case $1 in */integration/chaos) return 0 ;; esac; return 1; }
is_simulation()  { case $1 in */internal/sim|*/internal/sim/*) return 0 ;; esac; return 1; }
# Packages in which goroutines share memory: they run under the race detector as well.
is_concurrent()  { case $1 in */broker|*/broker/hotlog|*/gateway|*/metadata|*/metadata/memory|*/tiering|*/tiering/objstore|*/ops|*/internal/memnet) return 0 ;; esac; return 1; }

packages() { # packages WHAT: import paths of the packages that the stage tests
	local p
	go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' ./... | while read -r p; do
		case $1 in
			unit) is_conformance "$p" || is_integration "$p" || is_simulation "$p" || echo "$p" ;;
			race) ! is_concurrent "$p" || echo "$p" ;;
			conformance) ! is_conformance "$p" || echo "$p" ;;
			simulation) ! is_simulation "$p" || echo "$p" ;;
			integration) ! is_integration "$p" || is_chaos "$p" || echo "$p" ;;
			chaos) ! is_chaos "$p" || echo "$p" ;;
		esac
	done
}

run() { # run STAGE GO-TEST-FLAG…
	local stage=$1 pkgs
	shift
	pkgs=$(packages "$stage")
	if [ -z "$pkgs" ]; then
		echo "no packages in this stage" >&2
		return
	fi
	# shellcheck disable=SC2086  # one import path per word
	go test "$@" $pkgs
}

tools() { # the S3 servers that the conformance and integration tests start
	if scripts/tools.sh; then
		return
	fi
	if [ "${VARVE_REQUIRE_TOOLS:-}" = 1 ]; then
		echo "test.sh: the tools could not be installed and VARVE_REQUIRE_TOOLS=1" >&2
		exit 1
	fi
	echo "test.sh: the tools could not be installed (see above); tests that need one skip and say so" >&2
}

lint() {
	local unformatted
	unformatted=$(gofmt -l .)
	if [ -n "$unformatted" ]; then
		printf 'gofmt these files:\n%s\n' "$unformatted" >&2
		return 1
	fi
	go vet ./...
}

race() {
	local -x CGO_ENABLED=1
	if ! command -v "$(go env CC)" >/dev/null; then
		if [ "${VARVE_REQUIRE_TOOLS:-}" = 1 ]; then
			echo "test.sh: the race detector needs a C compiler (apt-get install gcc libc6-dev)" >&2
			return 1
		fi
		echo "skipped: the race detector needs a C compiler, and there is none" >&2
		return
	fi
	run race -race -short -timeout 20m
}

stage() {
	case $1 in
		lint) lint ;;
		unit) run unit -count=1 -timeout 5m ;;
		race) race ;;
		conformance) tools; run conformance -count=1 -timeout 10m ;;
		simulation) run simulation -count=1 -timeout 10m ;;
		integration) tools; make -s build; run integration -count=1 -timeout 15m ;;
		# By itself: it needs the machine, and its times are those of users. What it prints is the report of the run.
		chaos) tools; run chaos -count=1 -timeout 10m -v ;;
		*) echo "test.sh: no stage \"$1\"; there is lint unit race conformance simulation integration chaos" >&2; exit 2 ;;
	esac
}

for s in "${stages[@]}"; do
	say "$s"
	begin=$SECONDS
	stage "$s"
	if [ -n "${VARVE_TIMES:-}" ]; then
		printf '%s\t%d\n' "$s" $((SECONDS - begin)) >>"$VARVE_TIMES"
	fi
done
say "passed: ${stages[*]}"
