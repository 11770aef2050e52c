#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# install.sh NAME VERSION: Kafka's own jars, which the script that starts Kafka has fetched, and the program compiled against them.
set -euo pipefail
libs=$("$VARVE_KAFKA" fetch | sed -n 's/^libs=//p')
[ -e "$libs/kafka-clients-$2.jar" ] || { echo "no kafka-clients-$2.jar in $libs" >&2; exit 1; }
ln -sfn "$libs" "$CARD_DIR/libs"
if [ "$1" = kafka-clients ]; then javac -nowarn -d "$CARD_DIR" -cp "$CARD_DIR/libs/*" "$(dirname "$0")/Cases.java"; fi
