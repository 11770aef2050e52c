#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tools.sh VERSION: Kafka's command-line tools, as their users call them.
set -uo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Short runs: what the optimising compiler and a parallel collector cost is never won back.
export JAVA_TOOL_OPTIONS="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
b=$CARD_BOOTSTRAP

t() { echo "$CARD_RUN-$1"; }
tool() { timeout 80 "$VARVE_KAFKA" tool "$@"; }
on() { tool "$1" --bootstrap-server "$b" "${@:2}"; } # on TOOL ARG…
has() { grep -qE -- "$1" || { echo "the output has no $1" >&2; return 1; }; }
topic() { on topics --create --topic "$(t "$1")" --partitions "${2:-1}" --replication-factor "$CARD_REPLICAS" >/dev/null; }
ten=$(for i in 0 1 2 3 4 5 6 7 8 9; do echo "v$i"; done)
fill() { on console-producer --topic "$(t "$1")" "${@:2}" <<<"$ten"; }
consume() { on console-consumer --topic "$(t "$1")" --from-beginning --max-messages 10 --timeout-ms 40000 "${@:2}"; }
same() { [ "$1" = "$ten" ] || { echo "got '$(head -c 100 <<<"$1")'" >&2; return 1; }; }

run() { # run CASE COMMAND…
	local case=$1
	shift
	[ -z "${CARD_CASES:-}" ] || [[ " $CARD_CASES " == *" $case "* ]] || return 0
	if "$@" 2>"$work/err" >"$work/out"; then
		printf 'pass\t%s\n' "$case"
	else
		printf 'fail\t%s\t%s\n' "$case" "$(cat "$work/err" "$work/out" | grep -vE '^$|^Picked up' | tail -n 2 | tr '\t\n' '  ' | head -c 300)"
	fi
	cat "$work/err" >&2
}

console() { topic console && fill console && same "$(consume console)"; }
console_group() { fill console && on console-consumer --topic "$(t console)" --group "$(t g)" --from-beginning --max-messages 10 --timeout-ms 40000; }
console_848() { same "$(consume console --command-property group.protocol=consumer)"; }
console_txn() { same "$(consume console --isolation-level read_committed)"; }
verifiable_producer() {
	topic verifiable 3 && on verifiable-producer --topic "$(t verifiable)" --max-messages 1000 --acks -1 | has '"sent":1000,.*"acked":1000|"acked":1000.*"sent":1000'
}
verifiable_consumer() { # verifiable_consumer GROUP ARG…
	on verifiable-consumer --topic "$(t verifiable)" --group-id "$(t "$1")" --max-messages 1000 --reset-policy earliest "${@:2}" | has '"name":"shutdown_complete"'
}
topics_list() { on topics --list | has "^$(t console)\$"; }
topics_describe() { on topics --describe --topic "$(t verifiable)" | has "PartitionCount: 3.*ReplicationFactor: $CARD_REPLICAS"; }
topics_alter() { on topics --alter --topic "$(t verifiable)" --partitions 5 && on topics --describe --topic "$(t verifiable)" | has 'PartitionCount: 5'; }
topics_delete() { topic gone && on topics --delete --topic "$(t gone)"; }
topic_configs() {
	on configs --alter --topic "$(t console)" --add-config retention.ms=7200000 && on configs --describe --topic "$(t console)" | has 'retention.ms=7200000' &&
		on configs --alter --topic "$(t console)" --delete-config retention.ms && ! on configs --describe --topic "$(t console)" | has 'retention.ms=7200000' 2>/dev/null
}
broker_configs() { on configs --describe --broker 1 --all | has 'log.retention'; }
quotas() {
	on configs --alter --client "$(t client)" --add-config consumer_byte_rate=100000 && on configs --describe --client "$(t client)" | has 'consumer_byte_rate=100000' &&
		on configs --alter --client "$(t client)" --delete-config consumer_byte_rate
}
groups_list() { on consumer-groups --list | has "^$(t g)\$"; }
groups_describe() { on consumer-groups --describe --group "$(t g)" | has "$(t console) +0 +[0-9]+"; }
groups_reset() { on consumer-groups --reset-offsets --group "$(t g)" --topic "$(t console)" --to-earliest --execute && on consumer-groups --describe --group "$(t g)" | has "$(t console) +0 +0 "; }
groups_delete() { on consumer-groups --delete --group "$(t g)" | has 'successful'; }
all_groups() { on groups --list | has "$(t g)"; }
get_offsets() { on get-offsets --topic "$(t verifiable)" --time earliest | has "$(t verifiable):0:0" && on get-offsets --topic "$(t verifiable)" --time max-timestamp; }
log_dirs() { on log-dirs --describe --topic-list "$(t console)" | has '"partition":"'"$(t console)"'-0","size":[1-9]'; }
election() { on leader-election --election-type preferred --all-topic-partitions; }
reassign() {
	local move="$work/move.json" a
	a=$(on topics --describe --topic "$(t console)" | sed -n 's/.*Replicas: \([0-9,]*\).*/\1/p')
	printf '{"version":1,"partitions":[{"topic":"%s","partition":0,"replicas":[%s]}]}' "$(t console)" "$(tr ',' '\n' <<<"$a" | tac | paste -sd,)" >"$move"
	on reassign --reassignment-json-file "$move" --execute && for _ in 1 2 3 4 5; do on reassign --reassignment-json-file "$move" --verify | has 'is completed|is complete' && return; done
}
delete_records() {
	printf '{"version":1,"partitions":[{"topic":"%s","partition":0,"offset":4}]}' "$(t console)" >"$work/records.json"
	on delete-records --offset-json-file "$work/records.json" | has 'low_watermark: 4'
}
api_versions() { on api-versions | has 'Produce\(0\)'; }
cluster_id() { tool cluster cluster-id --bootstrap-server "$b" | has 'Cluster ID'; }
features() { tool features --bootstrap-server "$b" describe | has 'Feature: metadata.version'; }
transactions_list() { tool transactions --bootstrap-server "$b" list | has 'TransactionalId'; }
producers() { tool transactions --bootstrap-server "$b" describe-producers --topic "$(t console)" --partition 0 | has 'ProducerId'; }
copier() {
	topic copied && tool org.apache.kafka.tools.TransactionalMessageCopier --broker-list "$b" --input-topic "$(t console)" --input-partition 0 \
		--output-topic "$(t copied)" --consumer-group "$(t copier)" --transactional-id "$(t copier)" --transaction-size 5 --max-messages 10
}
perf() { topic perf 3 && tool producer-perf --topic "$(t perf)" --num-records 20000 --record-size 100 --throughput -1 --bootstrap-server "$b" | has '20000 records sent'; }
consumer_perf() { tool consumer-perf --topic "$(t perf)" --num-records 20000 --bootstrap-server "$b" --timeout 40000 | has 'MB'; }
compatibility() { # what a broker of today has to offer
	on topics --delete --topic newtopic >/dev/null 2>&1 # the test creates it, whoever did before
	topic compat && tool org.apache.kafka.tools.ClientCompatibilityTest --bootstrap-server "$b" --topic "$(t compat)" --num-cluster-nodes "$CARD_REPLICAS" \
		--offsets-for-times-supported True --cluster-id-supported True --expect-record-too-large-exception False --create-topics-supported True \
		--describe-acls-supported True --describe-configs-supported True --idempotent-producer-supported True 2>&1 | has 'SUCCESS'
}

printf 'version\t%s\n' "$1"
run api-versions api_versions
run console-producer-consumer console
run console-consumer-group console_group
run console-consumer-read-committed console_txn
run console-consumer-protocol-consumer console_848
run verifiable-producer verifiable_producer
run verifiable-consumer verifiable_consumer gv
run verifiable-consumer-protocol-consumer verifiable_consumer gw --group-protocol consumer
run topics-list topics_list
run topics-describe topics_describe
run topics-alter-partitions topics_alter
run topics-delete topics_delete
run configs-topic topic_configs
run configs-broker broker_configs
run configs-client-quota quotas
run consumer-groups-list groups_list
run consumer-groups-describe groups_describe
run consumer-groups-reset-offsets groups_reset
run groups-list all_groups
run consumer-groups-delete groups_delete
run get-offsets get_offsets
run log-dirs log_dirs
run leader-election election
run reassign-partitions reassign
run delete-records delete_records
run cluster-id cluster_id
run features-describe features
run producer-perf perf
run consumer-perf consumer_perf
run client-compatibility-test compatibility
run transactions-list transactions_list
run transactions-describe-producers producers
run transactions-message-copier copier
