// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func describeRequest(synonyms bool, resources ...kmsg.DescribeConfigsRequestResource) *kmsg.DescribeConfigsRequest {
	r := kmsg.NewPtrDescribeConfigsRequest()
	r.IncludeSynonyms = synonyms
	r.Resources = resources
	return r
}

func resource(t kmsg.ConfigResourceType, name string, keys ...string) kmsg.DescribeConfigsRequestResource {
	r := kmsg.NewDescribeConfigsRequestResource()
	r.ResourceType, r.ResourceName, r.ConfigNames = t, name, keys
	return r
}

const (
	topicResource   = kmsg.ConfigResourceTypeTopic
	brokerResource  = kmsg.ConfigResourceTypeBroker
	loggerResource  = kmsg.ConfigResourceTypeBrokerLogger
	groupResource   = kmsg.ConfigResourceTypeGroupConfig
	metricsResource = kmsg.ConfigResourceTypeClientMetrics
)

func TestDescribeConfigs(t *testing.T) {
	x := newAdminScript(t)
	x.makeTopic("t", 1, "max.message.bytes", "2000000", "cleanup.policy", "compact")
	tt := x.topic("t")
	for v := int16(1); v <= 4; v++ {
		x.do("two keys", v, describeRequest(true, resource(topicResource, tt, "max.message.bytes", "flush.messages")))
		x.do("no synonyms", v, describeRequest(false, resource(topicResource, tt, "cleanup.policy")))
	}
	x.do("version that is not advertised", 0, describeRequest(false, resource(topicResource, tt, "cleanup.policy", "flush.messages")))
	x.do("unknown key", 4, describeRequest(false, resource(topicResource, tt, "no.such.config", "preallocate")))
	x.do("no key", 4, describeRequest(false, kmsg.DescribeConfigsRequestResource{ResourceType: topicResource, ResourceName: tt, ConfigNames: []string{}}))
	x.do("unknown topic", 4, describeRequest(false, resource(topicResource, x.topic("no"))))
	x.do("bad topic name", 4, describeRequest(false, resource(topicResource, "a b")))
	x.do("empty topic name", 4, describeRequest(false, resource(topicResource, "")))
	x.do("broker", 4, describeRequest(true, resource(brokerResource, "1", "num.partitions", "fetch.max.bytes")))
	x.do("broker, secret", 4, describeRequest(true, resource(brokerResource, "1", "ssl.keystore.password")))
	x.do("another broker", 4, describeRequest(false, resource(brokerResource, "2")))
	x.do("no broker id", 4, describeRequest(false, resource(brokerResource, "one")))
	x.do("all brokers", 4, describeRequest(true, resource(brokerResource, "", "message.max.bytes")))
	x.do("logger of another broker", 4, describeRequest(false, resource(loggerResource, "2", "kafka")))
	x.do("logger without broker", 4, describeRequest(false, resource(loggerResource, "", "kafka")))
	x.do("group", 4, describeRequest(true, resource(groupResource, "g", "consumer.session.timeout.ms")))
	x.do("no group", 4, describeRequest(true, resource(groupResource, "", "consumer.session.timeout.ms")))
	x.do("client metrics", 4, describeRequest(true, resource(metricsResource, "m", "interval.ms")))
	x.do("no client metrics", 4, describeRequest(true, resource(metricsResource, "")))
	x.do("unknown type", 4, describeRequest(false, resource(3, "x"), resource(topicResource, tt, "preallocate")))
	x.do("named twice", 4, describeRequest(false, resource(topicResource, tt, "preallocate"), resource(topicResource, tt, "preallocate")))
	x.do("nothing", 4, describeRequest(false))
	x.golden("32_describe_configs")
}

type configOp struct {
	name  string
	op    kmsg.IncrementalAlterConfigOp
	value *string
}

func incrementalRequest(validateOnly bool, t kmsg.ConfigResourceType, name string, ops ...configOp) *kmsg.IncrementalAlterConfigsRequest {
	r := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r.ValidateOnly = validateOnly
	q := kmsg.NewIncrementalAlterConfigsRequestResource()
	q.ResourceType, q.ResourceName = t, name
	for _, op := range ops {
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		c.Name, c.Op, c.Value = op.name, op.op, op.value
		q.Configs = append(q.Configs, c)
	}
	r.Resources = append(r.Resources, q)
	return r
}

// inForce writes down a topic's config as described, once the change has had the time to get there.
func (x *adminScript) inForce(topic string, keys ...string) {
	if x.oracle {
		time.Sleep(200 * time.Millisecond)
	}
	resp := x.quiet(4, describeRequest(false, resource(topicResource, x.topic(topic), keys...))).(*kmsg.DescribeConfigsResponse)
	for _, c := range resp.Resources[0].Configs {
		v := "null"
		if c.Value != nil {
			v = *c.Value
		}
		x.note("  now %s=%s from %v", c.Name, v, c.Source)
	}
}

func TestIncrementalAlterConfigs(t *testing.T) {
	x := newAdminScript(t)
	str := kmsg.StringPtr
	x.makeTopic("t", 1)
	tt := x.topic("t")
	const set, del, app, sub = kmsg.IncrementalAlterConfigOpSet, kmsg.IncrementalAlterConfigOpDelete, kmsg.IncrementalAlterConfigOpAppend, kmsg.IncrementalAlterConfigOpSubtract
	for v := int16(0); v <= 1; v++ {
		x.do("set", v, incrementalRequest(false, topicResource, tt, configOp{"retention.ms", set, str(fmt.Sprint(1000 + int(v)))}))
		x.inForce("t", "retention.ms")
		x.do("delete", v, incrementalRequest(false, topicResource, tt, configOp{"retention.ms", del, nil}))
		x.inForce("t", "retention.ms")
	}
	topicOp := func(name string, ops ...configOp) {
		x.do(name, 1, incrementalRequest(false, topicResource, tt, ops...))
	}
	topicOp("append", configOp{"cleanup.policy", app, str("compact")})
	x.inForce("t", "cleanup.policy")
	topicOp("subtract", configOp{"cleanup.policy", sub, str("delete")})
	x.inForce("t", "cleanup.policy")
	topicOp("append to a number", configOp{"retention.ms", app, str("1")})
	topicOp("append null", configOp{"cleanup.policy", app, nil})
	topicOp("set null", configOp{"retention.ms", set, nil})
	topicOp("unknown config", configOp{"no.such.config", set, str("1")})
	topicOp("delete an unknown config", configOp{"no.such.config", del, nil})
	topicOp("bad value", configOp{"retention.ms", set, str("soon")})
	topicOp("unknown operation", configOp{"retention.ms", 9, str("1")})
	topicOp("one key twice", configOp{"retention.ms", set, str("1")}, configOp{"retention.ms", set, str("2")})
	topicOp("contradiction", configOp{"min.compaction.lag.ms", set, str("2")}, configOp{"max.compaction.lag.ms", set, str("1")})
	topicOp("one good, one bad", configOp{"flush.ms", set, str("77")}, configOp{"segment.ms", set, str("0")})
	x.inForce("t", "flush.ms")
	topicOp("no operation")
	x.do("validate only", 1, incrementalRequest(true, topicResource, tt, configOp{"flush.ms", set, str("77")}))
	x.inForce("t", "flush.ms")
	x.do("validate only, bad", 1, incrementalRequest(true, topicResource, tt, configOp{"flush.ms", set, str("x")}))
	x.do("unknown topic", 1, incrementalRequest(false, topicResource, x.topic("no"), configOp{"flush.ms", set, str("77")}))
	x.do("bad topic name", 1, incrementalRequest(false, topicResource, "a b", configOp{"flush.ms", set, str("77")}))
	x.do("empty topic name", 1, incrementalRequest(false, topicResource, "", configOp{"flush.ms", set, str("77")}))

	topicOp("spelled otherwise", configOp{"retention.ms", set, str(" 007 ")}, configOp{"cleanup.policy", set, str("compact, delete")}, configOp{"min.cleanable.dirty.ratio", set, str("1")})
	x.inForce("t", "retention.ms")
	x.inForce("t", "cleanup.policy")
	x.inForce("t", "min.cleanable.dirty.ratio")
	metricsOp := func(name string, op configOp) {
		x.do(name, 1, incrementalRequest(true, metricsResource, "m", op))
	}
	metricsOp("client metrics", configOp{"interval.ms", set, str("1000")})
	metricsOp("client metrics, unknown key", configOp{"nosuch", set, str("1000")})
	metricsOp("client metrics, no interval", configOp{"interval.ms", set, str("soon")})
	metricsOp("client metrics, match", configOp{"match", set, str("client_id=a.*")})
	metricsOp("client metrics, bad match", configOp{"match", set, str("x")})

	brokerOp := func(name, broker string, ops ...configOp) {
		x.do(name, 1, incrementalRequest(true, brokerResource, broker, ops...))
	}
	brokerOp("broker", "1", configOp{"message.max.bytes", set, str("2000000")})
	brokerOp("all brokers", "", configOp{"message.max.bytes", set, str("2000000")})
	brokerOp("broker, read-only", "1", configOp{"num.partitions", set, str("2")})
	brokerOp("all brokers, read-only", "", configOp{"num.partitions", set, str("2")})
	brokerOp("broker, null", "1", configOp{"message.max.bytes", set, nil})
	brokerOp("broker, bad value", "1", configOp{"message.max.bytes", set, str("x")})
	brokerOp("broker, unknown config", "1", configOp{"no.such.config", set, str("x")})
	brokerOp("another broker", "2", configOp{"message.max.bytes", set, str("2000000")})
	brokerOp("no broker id", "one", configOp{"message.max.bytes", set, str("2000000")})
	x.do("group", 1, incrementalRequest(true, groupResource, "g", configOp{"consumer.session.timeout.ms", set, str("50000")}))
	x.do("group, bad value", 1, incrementalRequest(true, groupResource, "g", configOp{"consumer.session.timeout.ms", set, str("x")}))
	x.do("no group", 1, incrementalRequest(true, groupResource, "", configOp{"consumer.session.timeout.ms", set, str("50000")}))
	x.do("unknown type", 1, incrementalRequest(false, 3, "x", configOp{"a", set, str("1")}))
	twice := incrementalRequest(false, topicResource, tt, configOp{"flush.ms", set, str("5")})
	twice.Resources = append(twice.Resources, twice.Resources[0])
	x.do("resource named twice", 1, twice)
	x.inForce("t", "flush.ms")
	x.do("nothing", 1, kmsg.NewPtrIncrementalAlterConfigsRequest())
	x.golden("44_incremental_alter_configs")
}

func alterRequest(validateOnly bool, t kmsg.ConfigResourceType, name string, configs ...configOp) *kmsg.AlterConfigsRequest {
	r := kmsg.NewPtrAlterConfigsRequest()
	r.ValidateOnly = validateOnly
	q := kmsg.NewAlterConfigsRequestResource()
	q.ResourceType, q.ResourceName = t, name
	for _, op := range configs {
		c := kmsg.NewAlterConfigsRequestResourceConfig()
		c.Name, c.Value = op.name, op.value
		q.Configs = append(q.Configs, c)
	}
	r.Resources = append(r.Resources, q)
	return r
}

func TestAlterConfigs(t *testing.T) {
	x := newAdminScript(t)
	str := kmsg.StringPtr
	x.makeTopic("t", 1, "flush.ms", "9")
	tt := x.topic("t")
	for v := int16(0); v <= 2; v++ {
		x.do("replace", v, alterRequest(false, topicResource, tt, configOp{name: "preallocate", value: str(fmt.Sprint(v%2 == 0))}))
		x.inForce("t", "flush.ms", "preallocate")
	}
	one := func(name string, ops ...configOp) { x.do(name, 2, alterRequest(false, topicResource, tt, ops...)) }
	one("unknown config", configOp{name: "no.such.config", value: str("1")})
	one("bad value", configOp{name: "flush.ms", value: str("x")})
	one("null value", configOp{name: "flush.ms", value: nil})
	one("one key twice", configOp{name: "flush.ms", value: str("1")}, configOp{name: "flush.ms", value: str("2")})
	x.inForce("t", "flush.ms", "preallocate")
	x.do("validate only", 2, alterRequest(true, topicResource, tt, configOp{name: "flush.ms", value: str("1")}))
	one("to the defaults")
	x.inForce("t", "flush.ms", "preallocate")
	x.do("unknown topic", 2, alterRequest(false, topicResource, x.topic("no"), configOp{name: "flush.ms", value: str("1")}))
	x.do("bad topic name", 2, alterRequest(false, topicResource, "a b", configOp{name: "flush.ms", value: str("1")}))
	x.do("broker", 2, alterRequest(true, brokerResource, "1", configOp{name: "message.max.bytes", value: str("2000000")}))
	x.do("broker, read-only", 2, alterRequest(true, brokerResource, "1", configOp{name: "num.partitions", value: str("2")}))
	x.do("another broker", 2, alterRequest(true, brokerResource, "2", configOp{name: "message.max.bytes", value: str("2000000")}))
	twice := alterRequest(false, topicResource, tt, configOp{name: "flush.ms", value: str("5")})
	twice.Resources = append(twice.Resources, twice.Resources[0])
	x.do("resource named twice", 2, twice)
	x.do("unknown type", 2, alterRequest(false, 3, "x"))
	x.do("nothing", 2, kmsg.NewPtrAlterConfigsRequest())
	x.golden("33_alter_configs")
}
