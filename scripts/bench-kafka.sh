#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Compares a node, or three, on a local S3 server with as many of Apache Kafka 4.4 on this machine, alternating runs of the kbench driver,
# and prints its Markdown tables. Needs Java and two tools that are no part of this project:
#
#   VARVE_KBENCH   directory of the kbench driver's sources
#   VARVE_KAFKA    script that starts and stops Apache Kafka
#
# By default both are looked for in a directory tools/ of a folder beside this checkout.
#
# ROUNDS (default 3), WARMUP runs of each that are thrown away (default 1), DURATION of a run (default 20s), WORKLOADS: names of the
# rows below, all by default; MODES: "plain" (Kafka's default, no fsync), "fsync" (of each append), both by default; NODES: 1 (default),
# or 3 with replication factor 3 and min.insync.replicas 2 on both sides; BUCKET=file: one node with a bucket on the same disk instead of
# an S3 server, which shares the processors with what is compared and is not counted.
# The machine must be quiet: kbench prints what foreign load it saw.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/local.sh
. scripts/local.sh

beside=$(find .. -mindepth 2 -maxdepth 2 -type d -name tools 2>/dev/null | head -n 1)
kbench_src=${VARVE_KBENCH:-$beside/kbench}
kafka=${VARVE_KAFKA:-$beside/kafka/kafka}
[ -d "$kbench_src" ] || { say "no kbench sources in $kbench_src; set VARVE_KBENCH"; exit 1; }
[ -x "$kafka" ] || { say "no $kafka; set VARVE_KAFKA"; exit 1; }
command -v java >/dev/null || { say "Apache Kafka needs Java 17"; exit 1; }
[ -x bin/varve ] || { say "no bin/varve: run make build"; exit 1; }

free_port() {
	local port
	while :; do
		port=$((20000 + RANDOM % 12000)) # below the range that outgoing connections take
		listens "$port" || { echo "$port"; return; }
	done
}

dir=$(mktemp -d "${TMPDIR:-/tmp}/varve-bench.XXXXXX")
export VARVE_CLUSTER_DIR=$dir/varve VARVE_CLUSTER_NODES=${NODES:-1} VARVE_CLUSTER_PORT VARVE_CLUSTER_INTERNAL VARVE_CLUSTER_HTTP VARVE_CLUSTER_ETCD VARVE_CLUSTER_S3
VARVE_CLUSTER_PORT=$(free_port) VARVE_CLUSTER_INTERNAL=$(free_port) VARVE_CLUSTER_HTTP=$(free_port) VARVE_CLUSTER_ETCD=$(free_port) VARVE_CLUSTER_S3=$(free_port)
peer_port=$(free_port)
cleanup() {
	if [ "${BUCKET:-}" = file ]; then halt "$dir/varve" node-1; else scripts/cluster.sh stop || true; fi
	"$kafka" stop "$dir/kafka" >/dev/null || true
	rm -rf "$dir"
}
trap cleanup EXIT

(cd "$kbench_src" && go build -o "$dir/kbench" .)
case ${BUCKET:-} in
	"") scripts/cluster.sh start ;;
	file)
		[ "$VARVE_CLUSTER_NODES" = 1 ] || { say "BUCKET=file is for NODES=1"; exit 1; }
		mkdir "$VARVE_CLUSTER_DIR"
		launch "$VARVE_CLUSTER_DIR" node-1 bin/varve dev --data "$VARVE_CLUSTER_DIR/data" --listeners "PLAINTEXT://127.0.0.1:$VARVE_CLUSTER_PORT" \
			--http "127.0.0.1:$VARVE_CLUSTER_HTTP"
		await "$VARVE_CLUSTER_DIR" node-1 "/readyz" fetch "127.0.0.1:$VARVE_CLUSTER_HTTP" /readyz
		;;
	*) say "BUCKET is \"file\" or nothing"; exit 1 ;;
esac
nodes=$VARVE_CLUSTER_NODES replicas=()
[ "$nodes" = 1 ] || replicas=(-rf 3 -topic-config min.insync.replicas=2)

# side NAME PORT STEP PID…: a side of the comparison, its nodes' ports STEP apart.
side() {
	local name=$1 port=$2 step=$3 i of=
	shift 3
	for ((i = 0; i < nodes; i++)); do of+=127.0.0.1:$((port + i * step)),; done
	echo "$name=$of$(IFS=,; echo "$*")"
}
ours=$(side varve "$VARVE_CLUSTER_PORT" 10 $(cat "$VARVE_CLUSTER_DIR"/node-*.pid))

compare() { # compare TITLE FLAG…: one table, Kafka as it is running now
	local title=$1
	shift
	printf '\n### %s\n\n' "$title"
	[ "${WARMUP:-1}" = 0 ] || "$dir/kbench" compare "$ours" "$peer" -rounds "${WARMUP:-1}" "$@" >/dev/null 2>&1
	"$dir/kbench" compare "$ours" "$peer" -rounds "${ROUNDS:-3}" -markdown "$@" 2>/dev/null
}

wanted() { [ -z "${WORKLOADS:-}" ] || [[ " $WORKLOADS " == *" $1 "* ]]; }

run_all() { # run_all HOW: every wanted workload
	local span=(-duration "${DURATION:-20s}")
	! wanted produce || compare "produce, 256 KiB batches, Kafka $1" -workload produce -- "${replicas[@]}" -batch 262144 "${span[@]}"
	! wanted produce || compare "produce, 16 KiB batches, Kafka $1" -workload produce -- "${replicas[@]}" -batch 16384 "${span[@]}"
	! wanted consume || compare "consume, Kafka $1" -workload consume -- "${replicas[@]}"
	! wanted e2e || compare "end to end, 5,000 records/s, Kafka $1" -workload e2e -- "${replicas[@]}" -rate 5000 "${span[@]}"
	! wanted e2e || compare "end to end, 20,000 records/s, Kafka $1" -workload e2e -- "${replicas[@]}" -rate 20000 "${span[@]}"
	! wanted manyparts || compare "1,000 partitions, Kafka $1" -workload manyparts -- "${replicas[@]}" -warmup 30s -rate 5000 "${span[@]}"
	! wanted groups || compare "offset commits of 500 groups, Kafka $1" -workload groups -- "${replicas[@]}" -groups 500 "${span[@]}"
	! wanted groups || compare "offset commits of one group, Kafka $1" -workload groups -- "${replicas[@]}" -groups 1 -workers 1 "${span[@]}"
	! wanted timelookup || compare "time lookup, Kafka $1" -workload timelookup -- "${replicas[@]}"
}

for mode in ${MODES:-plain fsync}; do
	how="without fsync" options=()
	[ "$mode" = plain ] || { how="with fsync of each append"; options=(-o log.flush.interval.messages=1); }
	"$kafka" start "$dir/kafka" -p "$peer_port" -n "$nodes" "${options[@]}" >/dev/null
	peer=$(side kafka "$peer_port" 1 "$("$kafka" pids "$dir/kafka")")
	run_all "$how"
	"$kafka" stop "$dir/kafka" >/dev/null
	rm -rf "$dir/kafka"
done
