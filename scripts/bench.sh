#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs the Go benchmarks of all packages, or of those given, one package at a time so that they do not share the cores.
#
#   scripts/bench.sh [PACKAGE…]
#
# BENCH=REGEX (default .), COUNT=N runs of each (default 1), BENCHTIME (default 1s)
set -euo pipefail
cd "$(dirname "$0")/.."

if [ $# -eq 0 ]; then
	# shellcheck disable=SC2046  # one import path per word
	set -- $(grep -rl --include='*_test.go' '^func Benchmark' . | xargs -r -n1 dirname | sort -u)
fi
if [ $# -eq 0 ]; then
	echo "bench.sh: no package has benchmarks" >&2
	exit 1
fi
for pkg; do
	go test -run '^$' -bench "${BENCH:-.}" -benchmem -benchtime "${BENCHTIME:-1s}" -count "${COUNT:-1}" -timeout 60m "$pkg"
done
