#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Long random testing: every fuzz target for SOAK_SECONDS, then the models of the protocols, the simulation and all property tests with many more cases,
# SOAK_ROUNDS times under the race detector, then as many long runs of real processes under faults (SOAK_CHAOS_SECONDS each). A
# failure stops it; Go prints the input or the seed.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${SOAK_SECONDS:-60}
rounds=${SOAK_ROUNDS:-3}

# Go takes it for a failure when a worker is still busy as the time is up (go.dev/issue/56238); a finding is an input that it writes.
fuzz() { # fuzz TARGET DIR
	local out
	if out=$(go test -run '^$' -fuzz "^$1\$" -fuzztime "${seconds}s" "$2" </dev/null 2>&1); then
		printf '%s\n' "$out" | tail -n 3
		return
	fi
	printf '%s\n' "$out"
	if grep -q 'context deadline exceeded' <<<"$out" && ! grep -q 'Failing input' <<<"$out"; then
		echo "no finding: only a worker that was late" >&2
		return
	fi
	return 1
}

grep -rl --include='*_test.go' '^func Fuzz' . | sort | while read -r file; do
	dir=$(dirname "$file")
	sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$file" | while read -r target; do
		printf '\n== fuzz %s in %s for %s s\n' "$target" "$dir" "$seconds" >&2
		fuzz "$target" "$dir"
	done
done

printf '\n== property tests with 10,000 cases each\n' >&2
grep -rl --include='*_test.go' 'pgregory.net/rapid' . | xargs -r -n1 dirname | sort -u | while read -r dir; do
	go test -count=1 -timeout 0 "$dir" -rapid.checks=10000 </dev/null
done

if command -v spin >/dev/null; then
	printf '\n== models of the protocols\n' >&2
	scripts/models.sh
else
	printf '\n== models of the protocols: left out, there is no spin\n' >&2
fi

if [ -d internal/sim ]; then
	for ((i = 1; i <= rounds; i++)); do
		printf '\n== simulation, round %d of %d\n' "$i" "$rounds" >&2
		# The line "sim: N seeds ..." is the one for docs/track-record.md.
		VARVE_SIM_FROM=$RANDOM$RANDOM VARVE_SIM_SEEDS=${SOAK_SEEDS:-3400} go test -race -count=1 -timeout 0 -run 'Test(Cluster|Controller|Group|ClassicGroup|Transaction)?Seeds' -v ./internal/sim |
			grep -Ev '^ *(=== |--- PASS)'
	done
	printf '\n== bugs planted for the simulation to find, for %s s\n' "${SOAK_MUTANT_SECONDS:-600}" >&2
	# Each row with bars is one for docs/track-record.md. A short box begins anywhere in the list, so that soaks get around to all.
	VARVE_SIM_MUTANTS=1 VARVE_SIM_MUTANT_SECONDS=${SOAK_MUTANT_SECONDS:-600} VARVE_SIM_MUTANT_SKIP=$RANDOM \
		go test -count=1 -timeout 0 -run TestMutants -v ./internal/sim | grep -Ev '^ *(=== |--- PASS)'
fi

for ((i = 1; i <= rounds; i++)); do
	printf '\n== chaos, round %d of %d\n' "$i" "$rounds" >&2
	VARVE_LONG=1 VARVE_CHAOS_SEED=$RANDOM VARVE_CHAOS_SECONDS=${SOAK_CHAOS_SECONDS:-900} go test -count=1 -timeout 0 -run TestChaos -v ./integration/chaos
done
