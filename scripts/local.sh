# SPDX-License-Identifier: Apache-2.0
#
# What demo.sh and cluster.sh share: processes that are known by their pid files, and a little HTTP. To be sourced by bash.

say() { printf '%s\n' "$*" >&2; }

# launch DIR NAME COMMAND…: starts a process that outlives this script; DIR/NAME.pid and DIR/NAME.log are its.
launch() {
	local dir=$1 name=$2
	shift 2
	setsid "$@" >>"$dir/$name.log" 2>&1 </dev/null &
	echo $! >"$dir/$name.pid"
	disown # its end is no news of this shell
	# Until it has become the command, it is not known by its command line.
	local i
	for ((i = 0; i < 100; i++)); do
		! alive "$dir" "$name" || break
		sleep 0.02
	done
}

# alive DIR NAME: whether the process of the pid file runs. A pid that the system gave to another process does not count.
alive() {
	local pid
	pid=$(cat "$1/$2.pid" 2>/dev/null) && kill -0 "$pid" 2>/dev/null && tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -qF -- "$1"
}

# halt DIR NAME [SIGNAL]: ends the process and waits until it is gone.
halt() {
	local dir=$1 name=$2 pid i
	alive "$dir" "$name" || { rm -f "$dir/$name.pid"; return 0; }
	pid=$(cat "$dir/$name.pid")
	kill "-${3:-TERM}" "$pid" 2>/dev/null || true
	for ((i = 0; i < 400; i++)); do
		kill -0 "$pid" 2>/dev/null || break
		sleep 0.1
	done
	kill -KILL "$pid" 2>/dev/null || true
	rm -f "$dir/$name.pid"
}

# ask HOST:PORT PATH: the status of an HTTP answer on a line of its own, then its headers and its body.
ask() {
	local host=${1%:*} port=${1##*:} status
	{
		exec 9<>"/dev/tcp/$host/$port" || return 1
	} 2>/dev/null
	printf 'GET %s HTTP/1.0\r\nHost: %s\r\n\r\n' "$2" "$1" >&9
	read -r _ status _ <&9 || status=
	printf '%s\n' "$status"
	cat <&9
	exec 9>&-
}

# fetch HOST:PORT PATH: the body of an HTTP answer; fails unless the status is 200.
fetch() {
	local text
	text=$(ask "$1" "$2") || return 1
	[ "${text%%$'\n'*}" = 200 ] || return 1
	printf '%s\n' "$text" | sed '1,/^\r$/d'
}

# serves HOST:PORT PATH: whether the answer is one of a server that has begun to serve: any but a 5xx.
serves() {
	local text
	text=$(ask "$1" "$2") || return 1
	[[ ${text%%$'\n'*} =~ ^[1-4][0-9][0-9]$ ]]
}

# await DIR NAME WHAT COMMAND…: polls the command while the process lives, for a minute.
await() {
	local dir=$1 name=$2 what=$3 i
	shift 3
	for ((i = 0; i < 1200; i++)); do
		if "$@" >/dev/null 2>&1; then
			return 0
		fi
		if ! alive "$dir" "$name"; then
			say "$name ended before $what:"
			tail -n 5 "$dir/$name.log" >&2
			return 1
		fi
		sleep 0.05
	done
	say "$name: no $what after a minute; see $dir/$name.log"
	return 1
}

listens() { (exec 9<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# s3_server: prints the path of an installed S3 server, minio first; fails when there is none.
s3_server() {
	local bin="${VARVE_TOOLS:-$HOME/.cache/varve-tools}/bin" name
	for name in minio versitygw; do
		if [ -x "$bin/$name" ]; then
			echo "$bin/$name"
			return 0
		fi
	done
	return 1
}

S3_USER=varve-local S3_SECRET=varve-local-secret S3_BUCKET=varve

# launch_s3 DIR PORT SERVER: starts the server with one bucket; both servers take a directory for a bucket.
launch_s3() {
	local dir=$1 port=$2 server=$3
	mkdir -p "$dir/s3/$S3_BUCKET" "$dir/s3-certs"
	case ${server##*/} in
		minio)
			MINIO_ROOT_USER=$S3_USER MINIO_ROOT_PASSWORD=$S3_SECRET MINIO_BROWSER=off MINIO_UPDATE=off \
				launch "$dir" s3 "$server" server --quiet --certs-dir "$dir/s3-certs" --address "127.0.0.1:$port" "$dir/s3"
			;;
		versitygw)
			launch "$dir" s3 "$server" -a "$S3_USER" -s "$S3_SECRET" -p "127.0.0.1:$port" --quiet --keep-alive posix "$dir/s3"
			;;
	esac
	# It listens before it serves: a node that asks meanwhile is refused.
	await "$dir" s3 "answer on port $port" serves "127.0.0.1:$port" "/$S3_BUCKET/probe"
}
