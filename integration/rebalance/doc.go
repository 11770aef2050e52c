// SPDX-License-Identifier: Apache-2.0

// Command rebalance measures how long a group takes until it is stable again: every member of the newest generation, or epoch, holds its
// share and every partition has one owner. Members speak the protocols by hand, over a connection of their own each, and react at once;
// so what is measured is the coordinator, the pace of heartbeats (-heartbeat), where many members join a consumer group its
// group.consumer.assignment.interval.ms, and where they join a classic one the broker's group.initial.rebalance.delay.ms. It does not read
// or write records.
//
//	rebalance varve=127.0.0.1:9092 kafka=127.0.0.1:19092
package main
