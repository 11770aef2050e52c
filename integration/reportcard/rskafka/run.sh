#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh NAME VERSION: the cases of rskafka.
CARD_VERSION=$2 exec "$CARD_DIR/crate/target/debug/cases"
