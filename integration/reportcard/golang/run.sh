#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh NAME VERSION: the cases of a Go client.
CARD_VERSION=$2 exec "$CARD_DIR/cases"
