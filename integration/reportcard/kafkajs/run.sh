#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh NAME VERSION: the cases of kafkajs.
NODE_PATH=$CARD_DIR/node_modules CARD_VERSION=$2 KAFKAJS_NO_PARTITIONER_WARNING=1 exec node "$(dirname "$0")/cases.js"
