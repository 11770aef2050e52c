#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# kcat is the system's own: a Debian package.
command -v kcat >/dev/null || { echo "kcat is not installed: apt-get install kcat" >&2; exit 1; }
