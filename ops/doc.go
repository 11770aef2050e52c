// SPDX-License-Identifier: Apache-2.0

// Package ops is the HTTP port of a node: health, metrics, profiles and the operations API, which shows and does what the Kafka
// protocol has no request for.
//
//	GET  /healthz                                        the process is alive
//	GET  /readyz                                         200 when the node should get traffic, else 503 and why
//	GET  /metrics                                        Prometheus text
//	GET  /debug/pprof/…                                  profiles; token
//	GET  /v1/cluster                                     cluster id, versions, nodes
//	GET  /v1/config                                      effective config, sensitive values left out
//	GET  /v1/topics/{topic}                              id and number of partitions
//	GET  /v1/topics/{topic}/partitions/{n}/segments      the manifest: ?from=OFFSET&limit=N, pages by "next"
//	GET  /v1/why/{topic}                                 why its partitions are as they are: ?partition=N
//	GET  /v1/nodes                                       nodes, what they lead and hold, which drain
//	POST /v1/nodes/{node}/drain, …/undrain               have a node give up what it leads and holds, or end that; token
//	POST /v1/tick/{job}                                  run a background job now; token
//	POST /v1/cluster/upgrade                             let the cluster write a newer version's formats; token
//
// It does not decide anything: every answer comes from the Node that it is given, and it holds no state of its own but counters.
// It also reads the memory limit that the process runs under and turns it into one for the Go heap.
//
// Invariants:
//
//   - O1: whatever changes state, and every profile, needs the bearer token; without a token file these are refused for everyone.
//   - O2: a scrape never blocks on the network or on another node.
package ops
