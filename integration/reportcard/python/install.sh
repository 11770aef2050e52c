#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# install.sh PACKAGE VERSION: a virtual environment with the client and its codecs in $CARD_DIR.
set -euo pipefail
codecs=()
case $1 in
	kafka-python) codecs=(python-snappy lz4 zstandard six) ;;
	aiokafka) codecs=(cramjam) ;;
esac
[ -x "$CARD_DIR/bin/python" ] || python3 -m venv "$CARD_DIR"
"$CARD_DIR/bin/pip" install -q "$1==$2" ${codecs[@]+"${codecs[@]}"}
