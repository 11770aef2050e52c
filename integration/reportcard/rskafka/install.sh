#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# install.sh NAME VERSION: a copy of the crate, built with the client in just this version.
set -euo pipefail
command -v cargo >/dev/null || { echo "no cargo" >&2; exit 1; }
mkdir -p "$CARD_DIR/crate"
cp -r "$(dirname "$0")"/{Cargo.toml,src} "$CARD_DIR/crate/"
cd "$CARD_DIR/crate"
cargo update -q -p rskafka --precise "$2"
export CARGO_PROFILE_DEV_DEBUG=0 # half the build
cargo build -q
