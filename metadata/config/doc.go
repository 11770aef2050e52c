// SPDX-License-Identifier: Apache-2.0

// Package config is the one registry of every topic, broker, group and client-metrics config that Varve knows: Kafka's names
// and Varve's own (varve.*), each with type, allowed values, default, synonyms, documentation and whether it has an effect.
// From it follow validation, inheritance (topic from broker), the typed structs the data path reads, what DescribeConfigs
// answers, what an alteration may do, and the table in docs/configs.md.
//
// It does not store configs, watch them or apply them, and knows no error codes: callers keep maps of overrides, and the
// gateway maps the sentinels.
//
// Invariants:
//
//   - C1: a name that Lookup does not know is refused, never stored.
//   - C2: a map that ApplyIncremental or Replace returned holds known names and allowed values only;
//     what they add up to is for ResolveTopic or ResolveBroker to say.
//   - C3: a topic's default equals what its broker synonyms' defaults give, so that it does not matter where a value comes from.
//   - C4: Topic and Broker are computed once and never change; a change is a new value.
package config
