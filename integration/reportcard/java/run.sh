#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh NAME VERSION: the cases of the Java client, or of Kafka's command-line tools.
here=$(dirname "$0")
[ "$1" = kafka-clients ] || exec "$here/tools.sh" "$2"
CARD_VERSION=$2 exec java -Xmx512m -Dlog4j2.level=OFF -cp "$CARD_DIR:$CARD_DIR/libs/*" Cases
