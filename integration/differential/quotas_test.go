// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// quotaOf is one entity with one operation: pairs of type and name ("" is the default), then the key. A value of 0 removes it.
func quotaOf(key string, value float64, pairs ...string) kmsg.AlterClientQuotasRequestEntry {
	e := kmsg.NewAlterClientQuotasRequestEntry()
	for i := 0; i+1 < len(pairs); i += 2 {
		p := kmsg.NewAlterClientQuotasRequestEntryEntity()
		p.Type = pairs[i]
		if pairs[i+1] != "" {
			p.Name = &pairs[i+1]
		}
		e.Entity = append(e.Entity, p)
	}
	op := kmsg.NewAlterClientQuotasRequestEntryOp()
	op.Key, op.Value, op.Remove = key, value, value == 0
	e.Ops = append(e.Ops, op)
	return e
}

func (s *side) alterQuotas(name string, v int16, entries ...kmsg.AlterClientQuotasRequestEntry) {
	s.t.Helper()
	req := kmsg.NewPtrAlterClientQuotasRequest()
	req.Entries = entries
	s.ask("alter quotas/"+name, v, req)
}

func (s *side) describeQuotas(name string, v int16, strict bool, pairs ...string) {
	s.t.Helper()
	req := kmsg.NewPtrDescribeClientQuotasRequest()
	req.Strict = strict
	for i := 0; i+1 < len(pairs); i += 2 {
		c := kmsg.NewDescribeClientQuotasRequestComponent()
		c.EntityType = pairs[i]
		switch pairs[i+1] {
		case "":
			c.MatchType = kmsg.QuotasMatchTypeDefault
		case "*":
			c.MatchType = kmsg.QuotasMatchTypeAny
		default:
			c.Match = &pairs[i+1]
		}
		req.Components = append(req.Components, c)
	}
	s.ask("describe quotas/"+name, v, req)
}

// awaitQuotas waits until so many entities have quotas. Kafka takes them over a little after it shows them, so it is asked some more.
func (s *side) awaitQuotas(n int) {
	s.t.Helper()
	req := kmsg.NewPtrDescribeClientQuotasRequest()
	more := 20
	for deadline := time.Now().Add(patience); more > 0; time.Sleep(10 * time.Millisecond) {
		if len(s.must(1, req).(*kmsg.DescribeClientQuotasResponse).Entries) == n {
			more--
		} else if time.Now().After(deadline) {
			s.t.Fatalf("%s: there are never %d entities with quotas", s.address, n)
		}
	}
}

// quotasScript sets, shows and removes quotas, and compares what a client with one is told.
func quotasScript(s *side) {
	for v := range int16(2) {
		s.alterQuotas("user", v, quotaOf("producer_byte_rate", 1e6, "user", "u"))
		s.alterQuotas("user again", v, quotaOf("consumer_byte_rate", 2e6, "user", "u"))
		s.alterQuotas("both defaults", v, quotaOf("request_percentage", 99.5, "user", "", "client-id", ""))
		s.alterQuotas("ip", v, quotaOf("connection_creation_rate", 1000, "ip", "127.3.3.3"))
		s.alterQuotas("wrong key", v, quotaOf("connection_creation_rate", 10, "user", "u"))
		s.alterQuotas("wrong type", v, quotaOf("producer_byte_rate", 10, "nobody", "u"))
		s.alterQuotas("no entity", v, quotaOf("producer_byte_rate", 10))
		s.alterQuotas("fraction", v, quotaOf("producer_byte_rate", 10.5, "user", "u"))
		s.alterQuotas("negative", v, quotaOf("producer_byte_rate", -1, "user", "u"))
		s.awaitQuotas(3)
		for _, strict := range []bool{false, true} {
			s.describeQuotas(fmt.Sprintf("everything, strict %t", strict), v, strict)
			s.describeQuotas(fmt.Sprintf("user, strict %t", strict), v, strict, "user", "u")
			s.describeQuotas(fmt.Sprintf("any user, strict %t", strict), v, strict, "user", "*")
			s.describeQuotas(fmt.Sprintf("both defaults, strict %t", strict), v, strict, "user", "", "client-id", "")
			s.describeQuotas(fmt.Sprintf("unknown type, strict %t", strict), v, strict, "nobody", "*")
		}
		s.alterQuotas("away", v, quotaOf("producer_byte_rate", 0, "user", "u"), quotaOf("request_percentage", 0, "user", "", "client-id", ""),
			quotaOf("connection_creation_rate", 0, "ip", "127.3.3.3"))
		s.alterQuotas("the other one away", v, quotaOf("consumer_byte_rate", 0, "user", "u"))
		s.awaitQuotas(0)
		s.describeQuotas("nothing left", v, false)
	}
	s.throttled()
}

// throttled compares the delays that a client is told, to the tenth of a second: the formula is Kafka's.
func (s *side) throttled() {
	s.create("throttled", 1)
	limit := func(rate float64) {
		for _, key := range []string{"producer_byte_rate", "consumer_byte_rate"} {
			req := kmsg.NewPtrAlterClientQuotasRequest()
			req.Entries = append(req.Entries, quotaOf(key, rate, "client-id", "differential"))
			s.must(1, req)
		}
	}
	limit(100)
	s.awaitQuotas(1)
	big := records(1).with(func(b *batch) { b.size = 4000 })
	for v := int16(3); v <= 13; v += 5 {
		resp := s.must(v, s.produceRequest(1, "throttled", 0, big.build())).(*kmsg.ProduceResponse)
		// The bytes before count as well, so only the first delay has a fixed size.
		s.note("throttled/produce", v, field{"throttled", fmt.Sprint(resp.ThrottleMillis > 1000)}, field{"code", fmt.Sprint(resp.Topics[0].Partitions[0].ErrorCode)})
		if v == 3 {
			s.note("throttled/delay of the first", v, field{"tenths", fmt.Sprint(resp.ThrottleMillis / 100)})
		}
		s.hangUp() // it is muted
	}
	for _, v := range []int16{4, 7, 8, 12, 18} {
		req := s.fetchRequest(1<<20, want{topic: "throttled", max: 1 << 20})
		first := s.must(v, req).(*kmsg.FetchResponse)
		s.note("throttled/fetch", v, field{"code", fmt.Sprint(first.ErrorCode)}, field{"session", fmt.Sprint(first.SessionID)})
		s.hangUp()
	}
	limit(0)
	s.awaitQuotas(0)
}

// restScript asks what is left of administration.
func restScript(s *side) {
	s.create("rest", 1)
	for v := int16(1); v <= 3; v++ {
		d := kmsg.NewPtrDescribeACLsRequest()
		d.ResourceType, d.ResourcePatternType, d.Operation, d.PermissionType = kmsg.ACLResourceTypeAny, kmsg.ACLResourcePatternTypeAny, kmsg.ACLOperationAny, kmsg.ACLPermissionTypeAny
		s.ask("acls/describe", v, d)
		c := kmsg.NewPtrCreateACLsRequest()
		n := kmsg.NewCreateACLsRequestCreation()
		n.ResourceType, n.ResourceName, n.Principal, n.Host = kmsg.ACLResourceTypeTopic, "rest", "User:a", "*"
		n.ResourcePatternType, n.Operation, n.PermissionType = kmsg.ACLResourcePatternTypeLiteral, kmsg.ACLOperationRead, kmsg.ACLPermissionTypeAllow
		c.Creations = append(c.Creations, n)
		s.ask("acls/create", v, c)
	}
	s.load("rest", 0, records(2).producer(500, 1, 0))
	for _, topic := range []string{"rest", "nowhere", "a b"} {
		r := kmsg.NewPtrDescribeProducersRequest()
		r.Topics = []kmsg.DescribeProducersRequestTopic{{Topic: topic, Partitions: []int32{0, 7}}}
		s.ask("describe producers/"+topic, 0, r)
	}
	for v := range int16(3) {
		for _, level := range []int16{33, 99, 1} {
			r := kmsg.NewPtrUpdateFeaturesRequest()
			r.ValidateOnly = true
			f := kmsg.NewUpdateFeaturesRequestFeatureUpdate()
			f.Feature, f.MaxVersionLevel, f.UpgradeType = "metadata.version", level, 1
			r.FeatureUpdates = append(r.FeatureUpdates, f)
			if v > 0 || level != 33 { // version 0 cannot only validate
				s.ask(fmt.Sprintf("update features/%d", level), v, r)
			}
		}
	}
	for _, kinds := range [][]int8{{4}, {8}, {16}, {32}, {4, 8}, {3}} {
		r := kmsg.NewPtrListConfigResourcesRequest()
		r.ResourceTypes = kinds
		s.ask(fmt.Sprintf("list config resources/%v", kinds), 1, r)
	}
	scram := kmsg.NewPtrDescribeUserSCRAMCredentialsRequest()
	s.ask("scram/everybody", 0, scram)
	scram.Users = []kmsg.DescribeUserSCRAMCredentialsRequestUser{{Name: "a"}, {Name: "b"}, {Name: "b"}}
	s.ask("scram/some", 0, scram)
	gone := kmsg.NewPtrUnregisterBrokerRequest()
	gone.BrokerID = 77
	s.ask("unregister/nobody", 0, gone)
	dirs := kmsg.NewPtrAlterReplicaLogDirsRequest()
	dirs.Dirs = []kmsg.AlterReplicaLogDirsRequestDir{{Dir: "/no/such/dir", Topics: []kmsg.AlterReplicaLogDirsRequestDirTopic{{Topic: "rest", Partitions: []int32{0}}}}}
	s.ask("log dirs/alter", 2, dirs)
}
