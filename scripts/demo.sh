#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# What varve is for, in under a minute: a log is loaded with the time of each event, the node is killed meanwhile, the log settles
# into a bucket and leaves the disk, the node is killed again, every line is read back, and times are looked up exactly, before
# and after. The log is this repository's own history, or made here when there is none. Everything happens in a temporary
# directory and is gone afterwards (VARVE_DEMO_KEEP=1 keeps it).
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/local.sh
. scripts/local.sh

lines=${VARVE_DEMO_LINES:-200000}
dir=$(mktemp -d "${TMPDIR:-/tmp}/varve-demo-XXXXXX")
[ -x bin/varve ] || make -s build
varve=$PWD/bin/varve

step() { printf '\n\033[1m%2d s  %s\033[0m\n' "$SECONDS" "$*"; }
finish() {
	local status=$?
	if [ $status -ne 0 ]; then
		say "the demo FAILED; end of the node's log:"
		tail -n 15 "$dir/node.log" >&2 || true
	fi
	halt "$dir" node KILL
	halt "$dir" s3 KILL
	if [ "${VARVE_DEMO_KEEP:-}" = 1 ]; then say "kept: $dir"; else rm -rf "$dir"; fi
}
trap finish EXIT

port() { # a free port below those that the system gives to outgoing connections
	local p
	while p=$((20000 + RANDOM % 12000)); listens "$p"; do :; done
	echo "$p"
}

kafka=$(port) http=$(port) s3=$(port)
export VARVE_BOOTSTRAP=127.0.0.1:$kafka VARVE_HTTP=127.0.0.1:$http
bucket=()

node() { # starts the node, on whatever it left
	MINIO_ACCESS_KEY=$S3_USER MINIO_SECRET_KEY=$S3_SECRET launch "$dir" node "$varve" dev --data "$dir/data" \
		--listeners "PLAINTEXT://127.0.0.1:$kafka" --http "127.0.0.1:$http" "${bucket[@]}"
	await "$dir" node /readyz fetch "127.0.0.1:$http" /readyz
}
metric() { fetch "127.0.0.1:$http" /metrics | awk -v want="$1" 'index($0, want) == 1 { n += $NF } END { printf "%d", n }'; }
crash() { halt "$dir" node KILL; }

# history: "TIME words", one event per file and commit, oldest first; the same again and again.
history() {
	local once=$dir/once
	git log --reverse --no-merges --date=iso-strict --format='commit %ad %h %an: %s' --name-only 2>/dev/null |
		awk '$1 == "commit" { head = $0; sub(/^commit /, "", head); next } NF { print head " | " $0 }' >"$once" || true
	if [ "$(wc -l <"$once")" -lt 100 ]; then
		awk 'BEGIN { srand(7); t = 1700000000; for (i = 0; i < 5000; i++) { t += int(rand() * 30); print strftime("%Y-%m-%dT%H:%M:%SZ", t, 1) " host" int(rand() * 9) " | event " i " took " int(rand() * 900) " ms" } }' >"$once"
	fi
	awk -v want="$lines" '{ line[n++] = $0 } END { each = int((want + n - 1) / n); for (i = 0; i < n; i++) for (j = 0; j < each; j++) print line[i] " #" j }' "$once"
}

step "a node, an etcd and a bucket, all on loopback"
if server=$(s3_server); then
	launch_s3 "$dir" "$s3" "$server"
	bucket=(--bucket "minio://127.0.0.1:$s3/$S3_BUCKET/demo?tls=false")
	echo "bucket: a real S3 server (${server##*/})"
else
	echo "bucket: a directory (no S3 server is installed; scripts/tools.sh installs one)"
fi
node
history >"$dir/input"
echo "log: $(wc -l <"$dir/input") lines, $(($(wc -c <"$dir/input") >> 20)) MiB, from $(head -n 1 "$dir/input" | cut -d' ' -f1) to $(tail -n 1 "$dir/input" | cut -d' ' -f1)"
"$varve" topic create history --partitions 3 --config retention.ms=-1 >/dev/null

step "load it, with the event time of each line; kill -9 in the middle"
"$varve" produce history --file "$dir/input" --key-separator ' | ' --compression zstd --batch-bytes 65536 \
	--time-regex '^\S+' --time-layout 2006-01-02T15:04:05Z07:00 >"$dir/produced" 2>&1 &
load=$!
written() { [ "$("$varve" offsets history --output json | awk -F'[:,]' '/"latest"/ { n += $2 } END { print n + 0 }')" -gt $((lines / 4)) ]; }
await "$dir" node "records" written
crash
echo "killed"
node
wait "$load" || { cat "$dir/produced"; exit 1; }
grep acknowledged "$dir/produced"

moments() { awk 'NR % 9973 == 1 { print $1 }' "$dir/input" | sort -u | head -n 12; }
look_up() { # look_up FILE: every moment in every partition
	local at
	moments | while read -r at; do
		"$varve" offsets history --at "$at" --output json | awk -F'[:,]' -v at="$at" '/"partition"/ { p = $2 + 0 } /"offset"/ { print at, p, $2 + 0 }'
	done >"$1"
}
brute_force() { # the first offset with that time or a later one, by reading everything
	"$varve" consume history --from earliest --to latest --format '%p %o %T\n' >"$dir/times"
	moments | while read -r at; do
		printf '%s %s\n' "$at" "$(date -d "$at" +%s)000"
	done >"$dir/moments"
	awk 'NR == FNR { at[n++] = $1; ms[$1] = $2; next }
		{ for (i = 0; i < n; i++) { k = at[i] " " $1; if ($3 + 0 >= ms[at[i]] + 0 && (!(k in first) || $2 + 0 < first[k])) first[k] = $2 + 0 } }
		END { for (i = 0; i < n; i++) for (p = 0; p < 3; p++) { k = at[i] " " p; print k, (k in first) ? first[k] : -1 } }' "$dir/moments" "$dir/times"
}

step "look times up: \"which offset was it at …?\""
look_up "$dir/hot"
brute_force >"$dir/expected"
diff <(sort "$dir/hot") <(sort "$dir/expected") || { say "a lookup differs from reading everything"; exit 1; }
echo "$(wc -l <"$dir/hot") lookups equal what reading everything says; for example:"
"$varve" offsets history --at "$(sed -n 2p "$dir/moments" | cut -d' ' -f1)"

step "let it settle into the bucket and leave the disk; kill -9 during the upload"
"$varve" config set --topic history internal.segment.bytes=65536 segment.ms=1000 local.retention.ms=100 >/dev/null
uploading() { [ "$(metric varve_archiver_seals_total)" -ge 2 ]; }
await "$dir" node "segment in the bucket" uploading
crash
echo "killed"
node
settled() { "$varve" offsets history --output json | awk -F'[:,]' '/"latest"/ { l = $2 + 0 } /"earliestLocal"/ && $2 + 0 != l { left = 1 } END { exit left }'; }
await "$dir" node "empty disk" settled
"$varve" offsets history
echo "$("$varve" segment list history | tail -n +2 | wc -l) segments in the bucket; the hot log on disk is empty"

step "look the same times up again, from the bucket"
look_up "$dir/cold"
diff "$dir/hot" "$dir/cold" || { say "a lookup changed when its record moved to the bucket"; exit 1; }
echo "$(wc -l <"$dir/cold") lookups, the same answers"

step "read everything back"
sum() { LC_ALL=C sort | sha256sum | cut -d' ' -f1; }
want=$(sum <"$dir/input")
got=$("$varve" consume history --from earliest --to latest --format '%k | %s\n' | sum)
echo "sha256 of the lines written   $want"
echo "sha256 of what varve reads    $got"
[ "$want" = "$got" ] || exit 1
if command -v kcat >/dev/null; then
	got=$(kcat -C -q -e -b "$VARVE_BOOTSTRAP" -t history -o beginning -f '%k | %s\n' | sum)
	echo "sha256 of what kcat reads     $got"
	[ "$want" = "$got" ] || exit 1
fi
echo "requests to the bucket since the last start: $(metric 'varve_objstore_requests_total{op="get",outcome="ok"') GETs, $(metric 'varve_objstore_requests_total{op="create",outcome="ok"') PUTs"

step "done: $(wc -l <"$dir/input") lines written, read back and found by time, over two kills"
