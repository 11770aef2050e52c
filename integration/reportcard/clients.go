// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path"
	"strings"
)

// client is a foreign client in one version.
type client struct {
	name, version string
	folder        string // beside this file
}

func (c client) id() string { return c.name + "-" + c.version }

// clients in the order in which they run: those that are quick first.
var clients = []client{
	{"kcat", "1.7.1", "kcat"},
	{"confluent-kafka", "2.16.1", "python"},
	{"kafka-python", "2.0.2", "python"},
	{"kafka-python", "2.3.0", "python"},
	{"kafka-python", "3.0.12", "python"},
	{"aiokafka", "0.14.0", "python"},
	{"sarama", "v1.40.1", "golang"},
	{"sarama", "v1.43.3", "golang"},
	{"sarama", "v1.61.1", "golang"},
	{"segmentio", "v0.4.51", "golang"},
	{"kafkajs", "2.2.4", "kafkajs"},
	{"franz", "v1.22.3", "golang"},
	{"kafka-clients", "4.4.0", "java"},
	{"franz-go-tests", "v1.22.3", "franzsuite"},
	{"rskafka", "0.6.0", "rskafka"},
	{"kafka-tools", "4.4.0", "java"},
}

// reason explains a difference. A client's name and a case may have the wildcards of path.Match.
type reason struct {
	client, name string
	text         string
}

const noShareGroups = "share groups are not built"

// reasons of the differences that are known. The first that fits counts.
var reasons = []reason{
	{"*", "group-share", noShareGroups},
	{"franz-go-tests-*", "*Share*", noShareGroups},
	{"franz-go-tests-*", "TestConsumeRegex", "meant: offsets live in etcd, so there is no `__consumer_offsets` topic to be left out ([differences](differences.md))"},
}

// explain returns the reason of a difference, or false if nobody has found it yet.
func explain(c client, name string) (string, bool) {
	for _, r := range reasons {
		byClient, _ := path.Match(r.client, c.id())
		byCase, _ := path.Match(r.name, strings.ReplaceAll(name, "/", ".")) // * reaches into the subtests
		if byClient && byCase {
			return r.text, true
		}
	}
	return "", false
}
