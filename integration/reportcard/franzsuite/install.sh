#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# install.sh NAME VERSION: franz-go's own tests, which its module ships, as a program.
set -euo pipefail
mkdir -p "$CARD_DIR/module"
cd "$CARD_DIR/module"
[ -e go.mod ] || go mod init reportcard.example/franzsuite
export GOFLAGS=-mod=mod CGO_ENABLED=0
go get -t "github.com/twmb/franz-go/pkg/kgo@$2"
go test -c -o "$CARD_DIR/kgo.test" github.com/twmb/franz-go/pkg/kgo
