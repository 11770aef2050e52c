#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh PACKAGE VERSION: the cases of a Python client.
set -euo pipefail
export PYTHONDONTWRITEBYTECODE=1
exec "$CARD_DIR/bin/python" "$(dirname "$0")/${1//-/_}_cases.py"
