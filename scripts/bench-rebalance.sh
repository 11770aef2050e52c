#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Measures how long groups of 100 members on 1,000 partitions take until they are stable, classic and consumer protocol, against a node
# with its etcd inside and against Apache Kafka 4.4 in turn, and prints a Markdown table. Needs Java and a script that starts Kafka:
#
#   VARVE_KAFKA    script that starts and stops Apache Kafka; by default tools/kafka/kafka of a folder beside this checkout
#
# ROUNDS (default 3; one more before them does not count). Further arguments go to integration/rebalance. In both systems
# group.initial.rebalance.delay.ms is 0, else it would be most of what is measured.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/local.sh
. scripts/local.sh

beside=$(find .. -mindepth 2 -maxdepth 2 -type d -name tools 2>/dev/null | head -n 1)
kafka=${VARVE_KAFKA:-$beside/kafka/kafka}
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

dir=$(mktemp -d "${TMPDIR:-/tmp}/varve-rebalance.XXXXXX")
port=$(free_port) http=$(free_port) peer=$(free_port) node=
cleanup() {
	[ -z "$node" ] || { kill "$node" && wait "$node"; } || true
	"$kafka" stop "$dir/kafka" >/dev/null 2>&1 || true
	rm -rf "$dir"
}
trap cleanup EXIT

go build -o "$dir/rebalance" ./integration/rebalance
bin/varve dev --data "$dir/varve" --listeners "PLAINTEXT://127.0.0.1:$port" --http "127.0.0.1:$http" --set group.initial.rebalance.delay.ms=0 >"$dir/varve.log" 2>&1 &
node=$!
"$kafka" start "$dir/kafka" -p "$peer" -o group.initial.rebalance.delay.ms=0 >/dev/null
for _ in $(seq 100); do
	! listens "$port" || break
	sleep 0.1
done
"$dir/rebalance" -rounds "${ROUNDS:-3}" "$@" "varve=127.0.0.1:$port" "kafka=127.0.0.1:$peer"
