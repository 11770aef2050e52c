#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh NAME VERSION: those of franz-go's tests that need a broker. They choose group protocols by what the broker offers.
set -uo pipefail
export KGO_SEEDS=$CARD_BOOTSTRAP KGO_TEST_RF=$CARD_REPLICAS KGO_TEST_RECORDS=${KGO_TEST_RECORDS:-5000}
printf 'version\t%s\n' "$2"
cd "$CARD_DIR"
list=$(KGO_SEEDS= ./kgo.test -test.list 'TestGroupETL|TestTxnEtl|TestShareGroupETL|TestGroupSimple|TestIssue|TestConsume|TestClient_Produce' | grep '^Test')
[ -z "${CARD_CASES:-}" ] || list=$(tr ' ' '\n' <<<"$CARD_CASES")
for name in $list; do
	out=$(timeout 250 ./kgo.test -test.v -test.timeout 240s -test.run "^$name\$" 2>&1)
	status=$?
	echo "== $name: exit $status" >&2
	tail -n 40 <<<"$out" >&2
	# Its subtests are the cases, if it has any; a test that did not get to its end fails whole. They stand deeper, behind their test:
	# names do not tell, as range/848 may stand beside range.
	leaves=$(awk '/^ *--- (PASS|FAIL|SKIP): / { depth = index($0, "-"); if (depth <= was) print last; was = depth; last = substr($2, 1, 4) " " $3 } END { if (was) print last }' <<<"$out" | sort -k 2)
	[ -n "$leaves" ] || leaves="FAIL $name"
	while read -r outcome case; do
		case $outcome in
			PASS) printf 'pass\t%s\n' "$case" ;;
			SKIP) printf 'none\t%s\tskips itself\n' "$case" ;;
			*) printf 'fail\t%s\t%s\n' "$case" "$(grep -E '_test.go:|panic|timed out|ERR' <<<"$out" | tail -n 1 | sed 's|/[^ ]*/pkg/mod/||' | tr -s '\t ' ' ' | head -c 250)" ;;
		esac
	done <<<"$leaves"
done
