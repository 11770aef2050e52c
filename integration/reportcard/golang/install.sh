#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# install.sh NAME VERSION: a copy of this module that requires the client in just this version, and its program built.
set -euo pipefail
case $1 in
	sarama) modules=("github.com/IBM/sarama@$2") ;;
	segmentio) modules=("github.com/segmentio/kafka-go@$2") ;;
	franz) modules=("github.com/twmb/franz-go@$2" github.com/twmb/franz-go/pkg/kadm@v1.20.0) ;;
esac
mkdir -p "$CARD_DIR/module"
cp -r "$(dirname "$0")"/{go.mod,card,"$1"} "$CARD_DIR/module/"
cd "$CARD_DIR/module"
export GOFLAGS=-mod=mod CGO_ENABLED=0
go get "${modules[@]}"
go build -o "$CARD_DIR/cases" "./$1"
