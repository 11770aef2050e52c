// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/record"
)

func describeProducers(topic string, partitions ...int32) *kmsg.DescribeProducersRequest {
	r := kmsg.NewPtrDescribeProducersRequest()
	t := kmsg.NewDescribeProducersRequestTopic()
	t.Topic, t.Partitions = topic, partitions
	r.Topics = append(r.Topics, t)
	return r
}

func TestDescribeProducers(t *testing.T) {
	x := newAdminScript(t)
	x.makeTopic("t", 2)
	x.produce("t", 1, 3)
	x.do("without an id", 0, describeProducers(x.topic("t"), 1))
	x.produceAs("t", 0, record.Producer{ID: 700, Epoch: 3, Sequence: 0}, 4)
	x.produceAs("t", 0, record.Producer{ID: 700, Epoch: 3, Sequence: 4}, 2)
	x.do("one", 0, describeProducers(x.topic("t"), 0))
	x.do("no such partition", 0, describeProducers(x.topic("t"), 0, 9))
	x.do("no such topic", 0, describeProducers(x.topic("no"), 0))
	x.do("bad name", 0, describeProducers("a b", 0))
	x.do("empty name", 0, describeProducers("", 0))
	x.do("no partition", 0, describeProducers(x.topic("t")))
	x.do("nothing", 0, kmsg.NewPtrDescribeProducersRequest())
	x.golden("61_describe_producers")
}

func TestListConfigResources(t *testing.T) {
	x := newAdminScript(t)
	list := func(name string, v int16, types ...int8) {
		r := kmsg.NewPtrListConfigResourcesRequest()
		r.ResourceTypes = types
		x.do(name, v, r)
	}
	str := kmsg.StringPtr
	list("client metrics, none", 0)
	x.quiet(1, incrementalRequest(false, metricsResource, x.topic("m"), configOp{"interval.ms", 0, str("10000")}))
	x.quiet(1, incrementalRequest(false, groupResource, x.topic("g"), configOp{"consumer.session.timeout.ms", 0, str("50000")}))
	x.settleQuotas()
	list("client metrics", 0)
	list("client metrics by type", 1, 16)
	list("groups", 1, 32)
	list("brokers", 1, 4)
	list("loggers", 1, 8)
	list("brokers and groups", 1, 4, 32)
	list("unknown type", 1, 3)
	list("unknown type among others", 1, 16, 3)
	list("one twice", 1, 4, 4)
	x.quiet(1, incrementalRequest(false, metricsResource, x.topic("m"), configOp{"interval.ms", 1, nil}))
	x.quiet(1, incrementalRequest(false, groupResource, x.topic("g"), configOp{"consumer.session.timeout.ms", 1, nil}))
	x.settleQuotas()
	list("client metrics, gone", 1, 16)
	list("groups, gone", 1, 32)
	x.golden("74_list_config_resources")
}

func TestUpdateFeatures(t *testing.T) {
	x := newAdminScript(t)
	type update struct {
		feature string
		level   int16
		kind    int8
	}
	ask := func(name string, v int16, validate bool, updates ...update) {
		r := kmsg.NewPtrUpdateFeaturesRequest()
		r.TimeoutMillis, r.ValidateOnly = 5000, validate
		for _, u := range updates {
			f := kmsg.NewUpdateFeaturesRequestFeatureUpdate()
			f.Feature, f.MaxVersionLevel, f.UpgradeType, f.AllowDowngrade = u.feature, u.level, u.kind, u.kind > 1
			r.FeatureUpdates = append(r.FeatureUpdates, f)
		}
		x.do(name, v, r)
	}
	for v := int16(0); v <= 2; v++ {
		ask("above the highest", v, false, update{"metadata.version", 99, 1})
		ask("unknown feature", v, false, update{"no.such.feature", 1, 1})
		ask("nothing", v, false)
		ask("as it is, validate only", v, true, update{"metadata.version", 33, 1})
		ask("downgrade called an upgrade", v, true, update{"metadata.version", 20, 1})
		ask("below the lowest", v, true, update{"metadata.version", 1, 3})
		ask("twice", v, true, update{"metadata.version", 33, 1}, update{"metadata.version", 33, 1})
		ask("empty name", v, true, update{"", 1, 1})
		ask("unknown kind", v, true, update{"metadata.version", 33, 9})
	}
	x.golden("57_update_features")
}

func TestUnregisterBroker(t *testing.T) {
	x := newAdminScript(t)
	for _, id := range []int32{77, -1} {
		r := kmsg.NewPtrUnregisterBrokerRequest()
		r.BrokerID = id
		x.do("a broker that is not registered", 0, r)
	}
	x.golden("64_unregister_broker")
}

func TestACLsWithoutAuthorizer(t *testing.T) {
	x := newAdminScript(t)
	for v := int16(1); v <= 3; v++ {
		d := kmsg.NewPtrDescribeACLsRequest()
		d.ResourceType, d.ResourcePatternType, d.Operation, d.PermissionType = kmsg.ACLResourceTypeAny, kmsg.ACLResourcePatternTypeAny, kmsg.ACLOperationAny, kmsg.ACLPermissionTypeAny
		x.do("describe", v, d)
		c := kmsg.NewPtrCreateACLsRequest()
		for range 2 {
			n := kmsg.NewCreateACLsRequestCreation()
			n.ResourceType, n.ResourceName, n.Principal, n.Host = kmsg.ACLResourceTypeTopic, x.topic("t"), "User:a", "*"
			n.ResourcePatternType, n.Operation, n.PermissionType = kmsg.ACLResourcePatternTypeLiteral, kmsg.ACLOperationRead, kmsg.ACLPermissionTypeAllow
			c.Creations = append(c.Creations, n)
		}
		x.do("create", v, c)
		r := kmsg.NewPtrDeleteACLsRequest()
		f := kmsg.NewDeleteACLsRequestFilter()
		f.ResourceType, f.ResourcePatternType, f.Operation, f.PermissionType = kmsg.ACLResourceTypeAny, kmsg.ACLResourcePatternTypeAny, kmsg.ACLOperationAny, kmsg.ACLPermissionTypeAny
		r.Filters = append(r.Filters, f, f)
		x.do("delete", v, r)
		x.do("create nothing", v, kmsg.NewPtrCreateACLsRequest())
		x.do("delete nothing", v, kmsg.NewPtrDeleteACLsRequest())
	}
	x.golden("29_acls")
}

// TestDelegationTokens: tools ask for tokens and know the code that says that this connection is none for it; an API that is not
// served stops them.
func TestDelegationTokens(t *testing.T) {
	x := newAdminScript(t)
	for v := int16(1); v <= 3; v++ {
		c := kmsg.NewPtrCreateDelegationTokenRequest()
		c.MaxLifetimeMillis = 1000
		x.do("create", v, c)
		c.Renewers = append(c.Renewers, kmsg.CreateDelegationTokenRequestRenewer{PrincipalType: "User", PrincipalName: "b"})
		x.do("create with a renewer", v, c)
		if v < 3 {
			r := kmsg.NewPtrRenewDelegationTokenRequest()
			r.HMAC, r.RenewTimeMillis = []byte("none"), 1000
			x.do("renew", v, r)
			e := kmsg.NewPtrExpireDelegationTokenRequest()
			e.HMAC, e.ExpiryPeriodMillis = []byte("none"), -1
			x.do("expire", v, e)
		}
		d := kmsg.NewPtrDescribeDelegationTokenRequest()
		x.do("describe all", v, d)
		d.Owners = []kmsg.DescribeDelegationTokenRequestOwner{{PrincipalType: "User", PrincipalName: "a"}}
		x.do("describe those of one", v, d)
	}
	x.golden("38_delegation_tokens")
}

func TestScramCredentials(t *testing.T) {
	x := newAdminScript(t)
	describe := func(name string, users ...string) {
		r := kmsg.NewPtrDescribeUserSCRAMCredentialsRequest()
		for _, u := range users {
			r.Users = append(r.Users, kmsg.DescribeUserSCRAMCredentialsRequestUser{Name: u})
		}
		x.do(name, 0, r)
	}
	describe("everybody")
	describe("one", x.topic("u"))
	describe("two", x.topic("u"), x.topic("v"))
	describe("one twice", x.topic("u"), x.topic("u"))
	describe("empty name", "")
	alter := func(name string, change func(*kmsg.AlterUserSCRAMCredentialsRequest)) {
		r := kmsg.NewPtrAlterUserSCRAMCredentialsRequest()
		change(r)
		x.do(name, 0, r)
	}
	remove := func(user string, mechanism int8) func(*kmsg.AlterUserSCRAMCredentialsRequest) {
		return func(r *kmsg.AlterUserSCRAMCredentialsRequest) {
			d := kmsg.NewAlterUserSCRAMCredentialsRequestDeletion()
			d.Name, d.Mechanism = user, mechanism
			r.Deletions = append(r.Deletions, d)
		}
	}
	set := func(user string, mechanism int8, iterations int32) func(*kmsg.AlterUserSCRAMCredentialsRequest) {
		return func(r *kmsg.AlterUserSCRAMCredentialsRequest) {
			u := kmsg.NewAlterUserSCRAMCredentialsRequestUpsertion()
			u.Name, u.Mechanism, u.Iterations, u.Salt, u.SaltedPassword = user, mechanism, iterations, []byte("salt"), []byte("password")
			r.Upsertions = append(r.Upsertions, u)
		}
	}
	alter("nothing", func(*kmsg.AlterUserSCRAMCredentialsRequest) {})
	alter("deletion of none", remove(x.topic("u"), 1))
	alter("deletion of an unknown mechanism", remove(x.topic("u"), 9))
	alter("deletion of nobody", remove("", 1))
	alter("too few iterations", set(x.topic("u"), 1, 10))
	alter("unknown mechanism", set(x.topic("u"), 9, 5000))
	alter("empty name", set("", 1, 5000))
	alter("set", set(x.topic("u"), 1, 5000))
	alter("set and deleted", func(r *kmsg.AlterUserSCRAMCredentialsRequest) {
		set(x.topic("w"), 1, 5000)(r)
		remove(x.topic("w"), 1)(r)
	})
	x.settleQuotas()
	describe("after setting", x.topic("u"))
	away := kmsg.NewPtrAlterUserSCRAMCredentialsRequest()
	remove(x.topic("u"), 1)(away)
	x.quiet(0, away)
	x.golden("50_scram")
}

func TestAlterReplicaLogDirs(t *testing.T) {
	x := newAdminScript(t)
	x.makeTopic("t", 2)
	for v := int16(1); v <= 2; v++ {
		move := func(name, dir, topic string, partitions ...int32) {
			r := kmsg.NewPtrAlterReplicaLogDirsRequest()
			d := kmsg.NewAlterReplicaLogDirsRequestDir()
			d.Dir = dir
			p := kmsg.NewAlterReplicaLogDirsRequestDirTopic()
			p.Topic, p.Partitions = topic, partitions
			d.Topics = append(d.Topics, p)
			r.Dirs = append(r.Dirs, d)
			x.do(name, v, r)
		}
		move("unknown directory", "/no/such/dir", x.topic("t"), 0, 1)
		move("unknown partition", "/no/such/dir", x.topic("t"), 9)
		move("unknown topic", "/no/such/dir", x.topic("no"), 0)
		move("relative directory", "here", x.topic("t"), 0)
		x.do("nothing", v, kmsg.NewPtrAlterReplicaLogDirsRequest())
	}
	x.golden("34_alter_replica_log_dirs")
}

// TestAlterReplicaLogDirsOfMany: the node's replicas are collected once, however many partitions a request names.
func TestAlterReplicaLogDirsOfMany(t *testing.T) {
	n := startNode(t, nodeOptions{static: map[string]string{"log.dirs": "/data/hot"}})
	n.topic("t", 3, nil)
	req := kmsg.NewPtrAlterReplicaLogDirsRequest()
	req.Dirs = []kmsg.AlterReplicaLogDirsRequestDir{{Dir: "/data/hot", Topics: []kmsg.AlterReplicaLogDirsRequestDirTopic{{Topic: "t", Partitions: make([]int32, 10_000)}}}}
	allocations := testing.AllocsPerRun(3, func() {
		resp, err := n.server.alterReplicaLogDirs(t.Context(), &Request{Key: 34, Version: 2, Body: req})
		check(t, err)
		if p := resp.(*kmsg.AlterReplicaLogDirsResponse).Topics[0].Partitions; len(p) != 1 || p[0].ErrorCode != 0 {
			t.Errorf("%+v", p)
		}
	})
	if allocations > 1000 {
		t.Errorf("%.0f allocations for %d names of one partition", allocations, 10_000)
	}
}

func TestBrokerLogger(t *testing.T) {
	x := newAdminScript(t)
	str := kmsg.StringPtr
	x.do("describe root", 4, describeRequest(true, resource(loggerResource, "1", "root")))
	x.do("describe an unknown logger", 4, describeRequest(true, resource(loggerResource, "1", "no.such.logger")))
	op := func(name, logger string, o kmsg.IncrementalAlterConfigOp, value *string) {
		x.do(name, 1, incrementalRequest(true, loggerResource, "1", configOp{logger, o, value}))
	}
	op("unknown logger", "no.such.logger", 0, str("INFO"))
	op("unknown level", "root", 0, str("LOUD"))
	op("delete root", "root", 1, nil)
	op("append", "root", 2, str("INFO"))
	op("set", "root", 0, str("INFO"))
	op("set null", "root", 0, nil)
	x.do("other broker", 1, incrementalRequest(true, loggerResource, "2", configOp{"root", 0, str("INFO")}))
	x.do("all brokers", 1, incrementalRequest(true, loggerResource, "", configOp{"root", 0, str("INFO")}))
	x.do("legacy", 2, alterRequest(true, loggerResource, "1", configOp{name: "root", value: str("INFO")}))
	x.golden("44_broker_logger")
}

// produceAs appends n records as an idempotent producer.
func (x *adminScript) produceAs(name string, partition int32, p record.Producer, n int) {
	x.t.Helper()
	b := batch(x.t, func(b *record.Builder) {
		b.SetProducer(p)
		b.LeaderEpoch = -1
		for i := range n {
			b.Add(time.Now().UnixMilli(), []byte("k"), []byte(fmt.Sprint(i)))
		}
	})
	req := produceRequest(x.topic(name), [16]byte{}, -1, b)
	req.Topics[0].Partitions[0].Partition = partition
	if code := x.quiet(9, req).(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode; code != 0 {
		x.t.Fatalf("producing to %s: error %d", name, code)
	}
}

// TestWhatThisNodeIs: what an oracle cannot be asked without harm: its own registration, its logger, its directory.
func TestWhatThisNodeIs(t *testing.T) {
	level := new(slog.LevelVar)
	n := startNode(t, nodeOptions{gateway: Config{LogLevel: level}, static: map[string]string{"log.dirs": "/data/hot"}})
	n.topic("t", 1, nil)
	c := n.dial()
	own := kmsg.NewPtrUnregisterBrokerRequest()
	own.BrokerID = testNodeID
	if r := c.do(0, own).(*kmsg.UnregisterBrokerResponse); r.ErrorCode != 42 {
		t.Errorf("unregistering a node that runs: %+v", r)
	}
	for name, want := range map[string]slog.Level{"DEBUG": slog.LevelDebug, "FATAL": slog.LevelError} {
		for _, only := range []bool{false, true} {
			value := name
			if only {
				value = "WARN"
			}
			req := incrementalRequest(only, loggerResource, "1", configOp{"root", 0, &value})
			if r := c.do(1, req).(*kmsg.IncrementalAlterConfigsResponse).Resources[0]; r.ErrorCode != 0 || level.Level() != want {
				t.Errorf("%s, validate only %t: %+v, level %s", value, only, r, level.Level())
			}
		}
		r := c.do(4, describeRequest(false, resource(loggerResource, "1"))).(*kmsg.DescribeConfigsResponse).Resources[0]
		if len(r.Configs) != 1 || *r.Configs[0].Value != want.String() {
			t.Errorf("level described: %+v", r.Configs)
		}
	}
	for partition, want := range map[int32]int16{0: 0, 5: 9} {
		req := kmsg.NewPtrAlterReplicaLogDirsRequest()
		req.Dirs = []kmsg.AlterReplicaLogDirsRequestDir{{Dir: "/data/hot", Topics: []kmsg.AlterReplicaLogDirsRequestDirTopic{{Topic: "t", Partitions: []int32{partition}}}}}
		if r := c.do(2, req).(*kmsg.AlterReplicaLogDirsResponse).Topics[0].Partitions[0]; r.ErrorCode != want {
			t.Errorf("partition %d to where it is: %+v", partition, r)
		}
	}
	list := kmsg.NewPtrListConfigResourcesRequest()
	kinds := map[int8]int{}
	for _, r := range c.do(1, list).(*kmsg.ListConfigResourcesResponse).ConfigResources {
		kinds[r.Type]++
	}
	if len(kinds) != 3 || kinds[2] != 1 || kinds[4] != 1 || kinds[8] != 1 {
		t.Errorf("all resources by type: %v", kinds)
	}
}
