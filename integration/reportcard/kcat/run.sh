#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The cases of kcat. Topics are created by the broker, as kcat has no admin calls.
set -uo pipefail
b=(-b "$CARD_BOOTSTRAP" -m 20)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

now=$(($(date +%s) * 1000))
t() { echo "$CARD_RUN-$1"; }
put() { timeout 40 kcat "${b[@]}" -P -t "$(t "$1")" -X topic.metadata.refresh.interval.ms=1000 "${@:2}"; }
get() { timeout 40 kcat "${b[@]}" -C -q -e -t "$(t "$1")" "${@:2}"; }
fill() { for i in 0 1 2 3 4 5 6 7 8 9; do echo "v$i"; done | put "$1" "${@:2}"; }
group() { timeout "$1" kcat "${b[@]}" -q -G "$(t "$2")" "${@:4}" "$(t "$3")"; }
same() { [ "$1" = "$2" ] || { echo "got '$(head -c 100 <<<"$1")' want '$(head -c 100 <<<"$2")'" >&2; return 1; }; }

run() { # run CASE COMMAND…
	local case=$1
	shift
	[ -z "${CARD_CASES:-}" ] || [[ " $CARD_CASES " == *" $case "* ]] || return 0
	if "$@" 2>"$work/err" >/dev/null; then
		printf 'pass\t%s\n' "$case"
	else
		printf 'fail\t%s\t%s\n' "$case" "$(tail -n 2 "$work/err" | tr '\t\n' '  ')"
	fi
}

ten=$(for i in 0 1 2 3 4 5 6 7 8 9; do echo "v$i"; done)
metadata() { fill metadata && kcat "${b[@]}" -L -J -t "$(t metadata)" | grep -q '"leader":'; }
acks() { # the first record shows that the leader is there: without acknowledgements the client would not know
	echo first | put "acks-$1" && fill "acks-$1" -X acks="$1" && same "$(get "acks-$1")" "first"$'\n'"$ten"
}
codec() { fill "codec-$1" -z "$1" && same "$(get "codec-$1")" "$ten"; }
idempotent() { fill idempotent -X enable.idempotence=true && same "$(get idempotent)" "$ten"; }
nulls() {
	printf 'k:\n' | put nulls -K : -Z -H h=1 -H e= && same "$(get nulls -f '%k|%S|%h\n')" "k|-1|h=1,e="
}
large() { # one batch of a thousand records, then one record of 900,000 bytes
	printf '%0900d\n' $(seq 1000) | put large -X linger.ms=500 -X batch.size=1000000 &&
		head -c 900000 /dev/zero | tr '\0' x >"$work/big" && put large "$work/big" && same "$(get large | wc -lc | xargs)" "1001 1801001"
}
earliest() { fill earliest && same "$(get earliest -o beginning)" "$ten"; }
latest() { fill latest && same "$(get latest -o -2)" $'v8\nv9'; }
offset() { fill offset && same "$(get offset -o 7)" $'v7\nv8\nv9'; }
timestamp() {
	fill timestamp && sleep 0.1 && same "$(get timestamp -o "s@$((now - 60000))")" "$ten" && same "$(get timestamp -o "s@$((now + 3600000))")" ""
}
join() { fill join && same "$(group 40 g-join join -o beginning -c 10)" "$ten"; }
resume() {
	fill resume && same "$(group 40 g-resume resume -X auto.offset.reset=earliest -c 4)" $'v0\nv1\nv2\nv3' &&
		same "$(group 40 g-resume resume -X auto.offset.reset=earliest -c 6)" $'v4\nv5\nv6\nv7\nv8\nv9'
}
static() { fill static && same "$(group 40 g-static static -X group.instance.id=one -X auto.offset.reset=earliest -c 10)" "$ten"; }
bytime() { fill bytime && kcat "${b[@]}" -Q -t "$(t bytime):0:$((now - 60000))" | grep -q 'offset 0$'; }

printf 'version\t%s\n' "$(kcat -V | sed -n 's/^Version \([^ ]*\).*librdkafka \([^ ]*\).*/\1, librdkafka \2/p')"
run metadata metadata
for a in 0 1 all; do run "produce-acks-$a" acks "$a"; done
for c in none gzip snappy lz4 zstd; do run "codec-$c" codec "$c"; done
run produce-idempotent idempotent
run produce-keys-headers-nulls nulls
run produce-large-batch large
run consume-earliest earliest
run consume-latest latest
run consume-offset offset
run consume-timestamp timestamp
run group-join-commit join
run group-resume resume
run group-static static
run admin-offsets-by-time bytime
