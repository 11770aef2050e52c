#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# install.sh NAME VERSION: kafkajs in $CARD_DIR, and codecs that need no compiler.
set -euo pipefail
command -v node >/dev/null || { echo "no node" >&2; exit 1; }
cd "$CARD_DIR"
npm install --silent --no-audit --no-fund "kafkajs@$2" kafkajs-snappy@1.1.0 lz4js@0.2.0 zstd-codec@0.1.5
