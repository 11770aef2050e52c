# SPDX-License-Identifier: Apache-2.0

VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS  := -s -w -X github.com/varve/varve/internal/cli.Version=$(VERSION)
GOBUILD  := CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)'

.PHONY: help build dev demo cluster test lint bench bench-kafka bench-rebalance report-card models soak

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 26

build: ## the one binary, static, in bin/varve
	$(GOBUILD) -o bin/varve ./cmd/varve

dev: build ## a broker on 127.0.0.1:9092, data in ./varve-data; Ctrl-C stops it
	bin/varve dev

demo: build ## load a log with its event times, let it settle, look times up, read it back
	scripts/demo.sh

cluster: ## three nodes, each with an etcd member inside, and a local S3 server on loopback; prints how to stop
	VARVE_CLUSTER_BUILD=1 scripts/cluster.sh start

test: ## format, vet, unit tests, race detector, conformance, integration
	scripts/test.sh

lint: ## format and vet only
	scripts/test.sh lint

bench: ## Go benchmarks of all packages
	scripts/bench.sh

bench-kafka: build ## side by side with Apache Kafka (needs Java and the kbench driver)
	scripts/bench-kafka.sh

bench-rebalance: build ## time until groups of 100 members are stable, beside Apache Kafka (needs Java)
	scripts/bench-rebalance.sh

report-card: build ## foreign Kafka clients against Varve and Apache Kafka; writes docs/report-card.md (needs Java, python3, node)
	scripts/report-card.sh

models: ## the models of the protocols and their planted wrong variants (needs spin and gcc)
	scripts/models.sh

soak: ## fuzzing and long random tests; SOAK_SECONDS per target (default 60)
	scripts/soak.sh
