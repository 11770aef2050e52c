#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Explores the models of docs/models with spin: every run that must hold, and every planted wrong variant, which must not. One line per run;
# fails when a right one fails, or ends for want of time or memory, and when a wrong one passes. Needs spin (6.5) and gcc.
#
#   scripts/models.sh                    all, with small bounds
#   scripts/models.sh replication …      only these models
#   MODELS_DEEP=1 scripts/models.sh      with larger bounds too, some minutes each
#   scripts/models.sh -t replication "-DX_STORE -DNO=1 …"    the shortest trace to a violation, one step per line
#
# MODELS_MIB (2000) and MODELS_SECONDS (300) bound each run.
set -uo pipefail
here=$(cd "$(dirname "$0")/../docs/models" && pwd)
command -v spin >/dev/null && command -v gcc >/dev/null || { echo "models.sh: needs spin and gcc (Debian: apt-get install spin gcc)" >&2; exit 2; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
mib=${MODELS_MIB:-2000} seconds=${MODELS_SECONDS:-300} bad=0 began=$SECONDS

# The runs of these may stop at a bound; of the others the end of each run is checked too: nothing hangs, nothing is left over.
declare -A pan=([replication]=-E [offsets]=-E [directories]=-E)

build() { # model defs gcc-options
	cd "$tmp" && rm -f pan* model.pml* && cp "$here/$1.pml" model.pml || exit 2
	# shellcheck disable=SC2086 # they are lists
	if ! spin -a $2 model.pml >spin.out 2>&1 || ! gcc -w -DSAFETY -DNOREDUCE -DNOCLAIM -DMEMLIM="$mib" $3 -o pan pan.c >>spin.out 2>&1; then
		cat spin.out
		echo "models.sh: $1 does not compile with: $2" >&2
		exit 2
	fi
}

explore() { # model defs gcc-options; sets states, hit and whole
	build "$1" "$2" "$3"
	# shellcheck disable=SC2086
	timeout "$seconds" ./pan -m1000000 -w22 ${pan[$1]:-} >out 2>&1
	states=$(awk '/states, stored/ { print $1 }' out)
	hit=$(sed -n 's/.*assertion violated \([A-Za-z0-9_]*\).*/\1/p' out | head -1)
	whole=no
	if grep -q 'pan:1: invalid end state' out; then hit=END_STATE; fi
	if grep -q 'errors: 0' out && ! grep -Eq 'Search not completed|max search depth too small' out; then whole=yes; fi
}

asked() { [[ -z $only || " $only " == *" $1 "* ]]; }

holds() { # model name bounds
	asked "$1" || return 0
	explore "$1" "$3" "-O2 -DCOLLAPSE"
	if [[ $whole == yes ]]; then
		echo "holds    $1, $2: $states states"
	else
		echo "FAILS    $1, $2: ${hit:-it ran out of time or memory} ($3)"
		bad=1
	fi
}

deep() { [[ -z ${MODELS_DEEP:-} ]] || holds "$@"; }

wrong() { # model what bounds properties
	asked "$1" || return 0
	explore "$1" "$3" "-O0 -DCOLLAPSE" # few states: compiling is the slow part
	if [[ -n $hit && " $4 " == *" $hit "* ]]; then
		echo "found    $1, $2: by $hit"
	else
		echo "PASSES   $1, $2: got ${hit:-nothing}, not one of $4 ($3)"
		bad=1
	fi
}

if [[ ${1:-} == -t ]]; then
	build "$2" "$3" "-O1 -DBFS"
	# shellcheck disable=SC2086
	timeout "$seconds" ./pan -w24 ${pan[$2]:-} >out 2>&1
	grep -E 'assertion|errors:' out
	# shellcheck disable=SC2086
	spin -t $3 model.pml 2>&1 | grep -vE '^spin:|#processes|proc |process|^\s+[a-zA-Z0-9_]+(\[[0-9]+\])? = '
	exit 0
fi
only="$*"
# shellcheck source=/dev/null
source "$here/runs"
echo "models.sh: $((SECONDS - began)) s"
exit $bad
