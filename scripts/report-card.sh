#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs foreign Kafka clients against Apache Kafka and against three nodes of Varve, and writes docs/report-card.md. Needs Java, python3,
# node and the network, once, to install the clients; what cannot be installed is listed as such.
#
#   VARVE_KAFKA            script that starts, stops and is the tools of Apache Kafka; by default looked for in a directory
#                          tools/kafka of a folder beside this checkout. It is not part of this project
#   CARD_CLIENTS           clients to run, as "kcat sarama-v1.43.3"; all by default. The others' last results are kept
#   CARD_CASES             only these cases of them; the results of the others are kept
#   CARD_CACHE             where clients are installed and results kept (default ~/.cache/varve-report-card)
#   CARD_BOX               longest run of one client against one system (default 10m)
#   CARD_KAFKA, CARD_VARVE bootstrap servers of a system that runs already, three nodes; it is used instead of starting one.
#                          "none": run nothing against that system
#   CARD_VARVE_VERSION     what runs there, when that is not bin/varve
#   CARD_NOTE              what else the page is to say of the conditions
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/local.sh
. scripts/local.sh

beside=$(find .. -mindepth 2 -maxdepth 2 -type d -name tools 2>/dev/null | head -n 1)
export VARVE_KAFKA=${VARVE_KAFKA:-$beside/kafka/kafka}
[ -x "$VARVE_KAFKA" ] || { say "no Apache Kafka: set VARVE_KAFKA to a script that starts it"; exit 1; }
[ -x bin/varve ] || { say "no bin/varve: run make build"; exit 1; }
cache=${CARD_CACHE:-$HOME/.cache/varve-report-card}
dir=$(mktemp -d "${TMPDIR:-/tmp}/varve-card.XXXXXX")

free_port() {
	local port
	while :; do
		port=$((20000 + RANDOM % 11000)) # below the range that outgoing connections take; the next ones are of the other nodes
		listens "$port" || listens $((port + 10)) || listens $((port + 20)) || { echo "$port"; return; }
	done
}

cleanup() {
	[ -n "${CARD_VARVE:-}" ] || scripts/cluster.sh stop || true
	[ -n "${CARD_KAFKA:-}" ] || "$VARVE_KAFKA" stop "$dir/kafka" >/dev/null || true
	rm -rf "$dir"
}
trap cleanup EXIT

kafka=${CARD_KAFKA:-} varve=${CARD_VARVE:-}
if [ -z "$kafka" ]; then
	kafka=$(VARVE_KAFKA_HEAP=${VARVE_KAFKA_HEAP:-512m} VARVE_KAFKA_BOOT_TIMEOUT_S=180 "$VARVE_KAFKA" start "$dir/kafka" -n 3 -p "$(free_port)" \
		-o auto.create.topics.enable=true | sed -n 's/^bootstrap=//p')
fi
if [ -z "$varve" ]; then
	export VARVE_CLUSTER_DIR=$dir/varve VARVE_CLUSTER_PORT VARVE_CLUSTER_INTERNAL VARVE_CLUSTER_HTTP VARVE_CLUSTER_ETCD VARVE_CLUSTER_S3
	VARVE_CLUSTER_PORT=$(free_port) VARVE_CLUSTER_INTERNAL=$(free_port) VARVE_CLUSTER_HTTP=$(free_port) VARVE_CLUSTER_ETCD=$(free_port) VARVE_CLUSTER_S3=$(free_port)
	scripts/cluster.sh start >&2
	varve=127.0.0.1:$VARVE_CLUSTER_PORT,127.0.0.1:$((VARVE_CLUSTER_PORT + 10)),127.0.0.1:$((VARVE_CLUSTER_PORT + 20))
fi

conditions="Run of $(date -u +%Y-%m-%d), ${CARD_VARVE_VERSION:-$(bin/varve version)}, Apache Kafka 4.4.0: three nodes of each on loopback of one
machine ($(nproc) cores, $(uname -m) Linux), topics with three replicas, automatic creation on, else defaults; Varve's bucket on a local S3 server. One client after another, each with
a time box of ${CARD_BOX:-10m} per system, each case with a limit of a minute or so.${CARD_NOTE:+ $CARD_NOTE}"
go run ./integration/reportcard -kafka "${kafka#none}" -varve "${varve#none}" -clients "${CARD_CLIENTS:-}" -box "${CARD_BOX:-10m}" \
	-results "$cache/results" -cache "$cache/clients" -conditions "$conditions" -out docs/report-card.md
