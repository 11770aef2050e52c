#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A small store on loopback: three nodes, each with a member of the etcd cluster inside, and one S3 server. Everything lives in one
# directory and is ended by pid.
#
#   scripts/cluster.sh start [NODE…]   starts what does not run, or these nodes, and waits until each is in sync
#   scripts/cluster.sh stop [NODE…]    ends everything, or these nodes; keeps the data
#   scripts/cluster.sh status | wipe   wipe ends everything and removes the data
#
# VARVE_CLUSTER_DIR=DIR     where (default ./varve-data/cluster)
# VARVE_CLUSTER_BUILD=1     build bin/varve also when it is there
#
# The first start takes these as well and notes them in DIR/settings, for all later calls:
#
# VARVE_CLUSTER_NODES=3     how many nodes
# VARVE_CLUSTER_PORT=9092   Kafka of the first node, the others follow in steps of 10: 9102, 9112
# VARVE_CLUSTER_HTTP=9644, VARVE_CLUSTER_INTERNAL=9094, VARVE_CLUSTER_ETCD=2380: as well in steps of 10; VARVE_CLUSTER_S3=9000
#
# No name here may be that of a flag of varve (VARVE_CLUSTER is --cluster): the nodes see them all.
set -euo pipefail
from=$PWD
cd "$(dirname "$0")/.."
# shellcheck source=scripts/local.sh
. scripts/local.sh

dir=${VARVE_CLUSTER_DIR:-varve-data/cluster}
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
# How this script and the binary are called from where the caller is, about this directory.
bin=bin/varve self=scripts/cluster.sh
if [ "$from" != "$PWD" ]; then bin=$PWD/$bin self=$PWD/$self; fi
if [ "$dir" != "$PWD/varve-data/cluster" ]; then self="VARVE_CLUSTER_DIR=$(printf %q "$dir") $self"; fi
count=${VARVE_CLUSTER_NODES:-3} s3=${VARVE_CLUSTER_S3:-9000}
kafka=${VARVE_CLUSTER_PORT:-9092} internal=${VARVE_CLUSTER_INTERNAL:-9094} http=${VARVE_CLUSTER_HTTP:-9644} etcd=${VARVE_CLUSTER_ETCD:-2380}
# shellcheck source=/dev/null
if [ -f "$dir/settings" ]; then . "$dir/settings"; fi
mapfile -t nodes < <(seq 1 "$count")
port() { echo $(($1 + 10 * ($2 - 1))); } # port BASE NODE
usage() { say "usage: scripts/cluster.sh start [NODE…] | stop [NODE…] | status | wipe"; exit 2; }

free() { # free NAME PORT
	if listens "$2"; then
		say "port $2 ($1) is in use: stop what has it, or choose another one (see the top of scripts/cluster.sh)"
		exit 1
	fi
}

start() { # start NODE…
	local i server peers="" bootstrap="" https="" missing=() running=0
	for i in "${nodes[@]}"; do
		peers+=${peers:+,}$i=http://127.0.0.1:$(port "$etcd" "$i")
		bootstrap+=${bootstrap:+,}127.0.0.1:$(port "$kafka" "$i")
		https+=${https:+,}127.0.0.1:$(port "$http" "$i")
	done
	alive "$dir" s3 || free S3 "$s3"
	for i in "$@"; do
		if alive "$dir" "node-$i"; then
			say "node $i runs already"
			continue
		fi
		free "Kafka of node $i" "$(port "$kafka" "$i")"
		free "inter-broker listener of node $i" "$(port "$internal" "$i")"
		free "HTTP of node $i" "$(port "$http" "$i")"
		free "etcd member of node $i" "$(port "$etcd" "$i")"
		missing+=("$i")
	done
	if ! server=$(s3_server); then
		say "no S3 server is installed; fetching and compiling one (versitygw), once: this takes minutes and the network"
		scripts/tools.sh versitygw || true
		server=$(s3_server) || { say "no S3 server could be installed: scripts/tools.sh versitygw says why"; exit 1; }
	fi
	if [ -n "${VARVE_CLUSTER_BUILD:-}" ] || [ ! -x bin/varve ]; then
		say "building bin/varve (the first time this takes a minute or two)"
		make -s build
	fi
	echo "count=$count s3=$s3 kafka=$kafka internal=$internal http=$http etcd=$etcd" >"$dir/settings"
	[ -f "$dir/token" ] || (umask 077 && od -An -N16 -tx1 /dev/urandom | tr -d ' \n' >"$dir/token")
	alive "$dir" s3 || launch_s3 "$dir" "$s3" "$server"
	for i in "${missing[@]}"; do
		MINIO_ACCESS_KEY=$S3_USER MINIO_SECRET_KEY=$S3_SECRET launch "$dir" "node-$i" bin/varve serve --node-id "$i" --rack "rack-$i" \
			--data "$dir/data-$i" --etcd embed --etcd-peers "$peers" --bucket "minio://127.0.0.1:$s3/$S3_BUCKET/logs?tls=false&checksum=when-supported" \
			--listeners "PLAINTEXT://127.0.0.1:$(port "$kafka" "$i"),INTERNAL://127.0.0.1:$(port "$internal" "$i")" \
			--http "127.0.0.1:$(port "$http" "$i")" --http-token-file "$dir/token" --set auto.create.topics.enable=true
	done
	for i in "${nodes[@]}"; do
		if alive "$dir" "node-$i"; then running=$((running + 1)); fi
	done
	if [ $((2 * running)) -le "$count" ]; then
		say "$running of $count nodes run: none is ready before a majority does"
		return
	fi
	for i in "${missing[@]}"; do
		await "$dir" "node-$i" "/readyz" fetch "127.0.0.1:$(port "$http" "$i")" /readyz
		say "node $i started"
	done
	cat <<-END
		bootstrap   $bootstrap
		http        $https (/metrics and /readyz of each node)
		bucket      http://127.0.0.1:$s3/$S3_BUCKET (${server##*/}, access key $S3_USER, secret key $S3_SECRET)
		data, logs  $dir
		look        $bin node list --http $https
		drain       $bin node drain 2 --http $https --http-token-file $(printf %q "$dir/token")
		restart     $self stop 2 && $self start 2    (one node at a time; start returns when it is in sync)
		stop        $self stop    (keeps the data; $self wipe removes it)
	END
}

stop() { # stop NODE…
	local i ran=()
	# All nodes at once: the last of them could not reach a majority of the etcd members to hand over. The bucket ends last.
	for i in "$@"; do
		if alive "$dir" "node-$i"; then ran+=("$i"); fi
		halt "$dir" "node-$i" &
	done
	wait
	for i in "$@"; do
		if [[ " ${ran[*]} " == *" $i "* ]]; then say "node $i stopped"; else say "node $i did not run"; fi
	done
}

stop_s3() {
	local what="did not run"
	if alive "$dir" s3; then what=stopped; fi
	halt "$dir" s3
	say "S3 server $what"
}

status() {
	local i
	for i in s3 "${nodes[@]/#/node-}"; do
		if alive "$dir" "$i"; then echo "$i runs, pid $(cat "$dir/$i.pid")"; else echo "$i does not run"; fi
	done
}

wipe() {
	local i
	for i in "${nodes[@]}"; do rm -rf "$dir/data-$i" "$dir/node-$i.log"; done
	rm -rf "$dir"/{s3,s3-certs,s3.log,settings,token}
	rmdir "$dir"
	say "$dir removed, with all data"
}

command=${1:-start} chosen=("${@:2}")
[[ $# -le 1 || $command =~ ^(start|stop)$ ]] || usage
for i in "${chosen[@]}"; do
	[[ " ${nodes[*]} " == *" $i "* ]] || { say "there is no node $i in $dir, only 1 to $count"; exit 2; }
done
case $command in
	start) start "${chosen[@]:-${nodes[@]}}" ;;
	stop) stop "${chosen[@]:-${nodes[@]}}"; [ ${#chosen[@]} -gt 0 ] || stop_s3; say "the data is kept in $dir" ;;
	status) status ;;
	wipe) stop "${nodes[@]}"; stop_s3; wipe ;;
	*) usage ;;
esac
