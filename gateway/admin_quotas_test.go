// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/gateway/quota"
	"github.com/varve/varve/metadata"
)

// quotaEntity is a list of pairs: a type and a name, "<default>" for null.
func quotaEntity(pairs ...string) (e []kmsg.AlterClientQuotasRequestEntryEntity) {
	for i := 0; i < len(pairs); i += 2 {
		p := kmsg.NewAlterClientQuotasRequestEntryEntity()
		p.Type = pairs[i]
		if pairs[i+1] != "<default>" {
			p.Name = &pairs[i+1]
		}
		e = append(e, p)
	}
	return e
}

func setQuota(key string, value float64) kmsg.AlterClientQuotasRequestEntryOp {
	op := kmsg.NewAlterClientQuotasRequestEntryOp()
	op.Key, op.Value = key, value
	return op
}

func dropQuota(key string) kmsg.AlterClientQuotasRequestEntryOp {
	op := kmsg.NewAlterClientQuotasRequestEntryOp()
	op.Key, op.Remove = key, true
	return op
}

func quotaEntry(entity []kmsg.AlterClientQuotasRequestEntryEntity, ops ...kmsg.AlterClientQuotasRequestEntryOp) kmsg.AlterClientQuotasRequestEntry {
	e := kmsg.NewAlterClientQuotasRequestEntry()
	e.Entity, e.Ops = entity, ops
	return e
}

func alterQuotas(validateOnly bool, entries ...kmsg.AlterClientQuotasRequestEntry) *kmsg.AlterClientQuotasRequest {
	r := kmsg.NewPtrAlterClientQuotasRequest()
	r.ValidateOnly, r.Entries = validateOnly, entries
	return r
}

const (
	matchExact, matchDefault, matchAny = kmsg.QuotasMatchTypeExact, kmsg.QuotasMatchTypeDefault, kmsg.QuotasMatchTypeAny
)

func component(kind string, match kmsg.QuotasMatchType, name ...string) kmsg.DescribeClientQuotasRequestComponent {
	c := kmsg.NewDescribeClientQuotasRequestComponent()
	c.EntityType, c.MatchType = kind, match
	if len(name) > 0 {
		c.Match = &name[0]
	}
	return c
}

func describeQuotas(strict bool, components ...kmsg.DescribeClientQuotasRequestComponent) *kmsg.DescribeClientQuotasRequest {
	r := kmsg.NewPtrDescribeClientQuotasRequest()
	r.Strict, r.Components = strict, components
	return r
}

// alterClientQuotasCodes are the refusals of AlterClientQuotas, and what it takes.
func alterClientQuotasCodes(x *adminScript) {
	u, c := x.topic("u"), x.topic("c")
	one := func(name string, entity []kmsg.AlterClientQuotasRequestEntryEntity, ops ...kmsg.AlterClientQuotasRequestEntryOp) {
		for v := int16(0); v <= 1; v++ {
			x.do(name, v, alterQuotas(false, quotaEntry(entity, ops...)))
		}
	}
	rate := setQuota("producer_byte_rate", 1000)
	one("user", quotaEntity("user", u), rate)
	one("client id", quotaEntity("client-id", c), rate)
	one("both", quotaEntity("user", u, "client-id", c), rate, setQuota("consumer_byte_rate", 2000), setQuota("request_percentage", 12.5), setQuota("controller_mutation_rate", 1.5))
	one("ip", quotaEntity("ip", "127.9.9.9"), setQuota("connection_creation_rate", 7))
	one("ip with a name", quotaEntity("ip", "no.such.host.invalid"), setQuota("connection_creation_rate", 7))
	one("ip default", quotaEntity("ip", "<default>"), setQuota("connection_creation_rate", 70000))
	one("ip default, gone", quotaEntity("ip", "<default>"), dropQuota("connection_creation_rate"))
	one("ip that is none", quotaEntity("ip", "a b"), setQuota("connection_creation_rate", 7))
	one("ip and user", quotaEntity("ip", "127.9.9.9", "user", u), setQuota("connection_creation_rate", 7))
	one("ip with a byte rate", quotaEntity("ip", "127.9.9.9"), rate)
	one("user with a connection rate", quotaEntity("user", u), setQuota("connection_creation_rate", 7))
	one("no entity", nil, rate)
	one("unknown type", quotaEntity("group", "g"), rate)
	one("empty type", quotaEntity("", "g"), rate)
	one("type twice", quotaEntity("user", u, "user", c), rate)
	one("empty name", quotaEntity("user", ""), rate)
	one("empty client id", quotaEntity("client-id", ""), rate)
	one("unknown key", quotaEntity("user", u), setQuota("no_such_rate", 1))
	one("key twice", quotaEntity("user", u), rate, setQuota("producer_byte_rate", 3))
	one("set and removed", quotaEntity("user", u), rate, dropQuota("producer_byte_rate"))
	one("removing an unknown key", quotaEntity("user", u), dropQuota("no_such_rate"))
	one("removing what is not there", quotaEntity("user", u+"-none"), dropQuota("producer_byte_rate"))
	one("no operation", quotaEntity("user", u))
	one("long name", quotaEntity("user", strings.Repeat("n", 300)), dropQuota("producer_byte_rate"))
	one("strange name", quotaEntity("user", u+"/ä,=%"), rate)
	for _, bad := range []struct {
		name  string
		value float64
	}{{"zero", 0}, {"negative", -1}, {"fraction", 1.5}, {"nearly whole", 1.0000001}, {"small", 1e-9}, {"huge", 1e300}, {"infinite", math.Inf(1)}, {"not a number", math.NaN()}, {"2^63", 9223372036854775807}} {
		for _, key := range []string{"producer_byte_rate", "request_percentage", "controller_mutation_rate"} {
			x.do(key+" "+bad.name, 1, alterQuotas(true, quotaEntry(quotaEntity("user", u), setQuota(key, bad.value))))
		}
		x.do("connection_creation_rate "+bad.name, 1, alterQuotas(true, quotaEntry(quotaEntity("ip", "127.9.9.9"), setQuota("connection_creation_rate", bad.value))))
	}
	x.do("connection_creation_rate above int", 1, alterQuotas(true, quotaEntry(quotaEntity("ip", "127.9.9.9"), setQuota("connection_creation_rate", 3e9))))
	x.do("one good, one bad", 1, alterQuotas(false, quotaEntry(quotaEntity("user", x.topic("good")), rate), quotaEntry(quotaEntity("nobody", x.topic("bad")), rate)))
	x.do("entity twice", 1, alterQuotas(false, quotaEntry(quotaEntity("user", x.topic("twice")), rate), quotaEntry(quotaEntity("user", x.topic("twice")), setQuota("consumer_byte_rate", 5))))
	x.do("entity twice in another order", 1, alterQuotas(false, quotaEntry(quotaEntity("user", x.topic("order"), "client-id", c), rate), quotaEntry(quotaEntity("client-id", c, "user", x.topic("order")), setQuota("consumer_byte_rate", 5))))
	x.do("validate only", 1, alterQuotas(true, quotaEntry(quotaEntity("user", x.topic("only")), rate)))
	x.do("nothing", 1, alterQuotas(false))
}

func TestAlterClientQuotas(t *testing.T) {
	x := newAdminScript(t)
	alterClientQuotasCodes(x)
	x.settleQuotas()
	for _, u := range []string{"u", "good", "twice", "only", "order"} {
		x.do("quotas of "+u, 1, describeQuotas(false, component("user", matchExact, x.topic(u))))
	}
	x.do("quotas of the strange one", 1, describeQuotas(false, component("user", matchExact, x.topic("u/ä,=%"))))
	x.golden("49_alter_client_quotas")
}

// TestQuotaEntitiesAreFull: where no further entity may have quotas, those that have some can still change and lose them.
func TestQuotaEntitiesAreFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{})
		n.setQuota(clientNamed("old"), "producer_byte_rate", 1000)
		set := map[string]float64{"producer_byte_rate": 5}
		changes := []metadata.QuotaChange{
			{Entity: clientNamed("new"), Set: set},
			{Entity: clientNamed("old"), Set: set},
			{Entity: clientNamed("gone"), Remove: []string{"producer_byte_rate"}},
			{Entity: clientNamed("newer"), Set: set},
		}
		for room, want := range [][]int16{{44, 0, 0, 44}, {0, 0, 0, 44}, {0, 0, 0, 0}} {
			resp := &kmsg.AlterClientQuotasResponse{Entries: make([]kmsg.AlterClientQuotasResponseEntry, len(changes))}
			good := n.server.goodQuotas(resp, changes, []int{0, 1, 2, 3}, n.meta.Image().Quotas(), room)
			for i, code := range want {
				if got := resp.Entries[i].ErrorCode; got != code {
					t.Errorf("room for %d, change %d: code %d, want %d", room, i, got, code)
				}
			}
			if len(good) != 2+room {
				t.Errorf("room for %d: %d changes are made", room, len(good))
			}
		}
	})
}

// TestLongQuotaNames: as many of the longest names as one transaction of the metadata store takes can be set, longer ones not.
func TestLongQuotaNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{})
		c := n.dial()
		long := strings.Repeat("/", maxQuotaName-2)
		var entries []kmsg.AlterClientQuotasRequestEntry
		for i := range 40 {
			name := fmt.Sprintf("%02d", i) + long
			entries = append(entries, quotaEntry(quotaEntity("user", name, "client-id", name), setQuota("producer_byte_rate", 1000)))
		}
		entries = append(entries, quotaEntry(quotaEntity("user", long+"///"), setQuota("producer_byte_rate", 1000)))
		for i, e := range c.do(1, alterQuotas(false, entries...)).(*kmsg.AlterClientQuotasResponse).Entries {
			want := codeNone
			if i == 40 {
				want = codeInvalidRequest
			}
			if e.ErrorCode != want.int16() {
				t.Errorf("entry %d: code %d, want %d", i, e.ErrorCode, want.int16())
			}
		}
		if got := n.meta.Image().Quotas().Len(); got != 40 {
			t.Errorf("%d entities have quotas", got)
		}
	})
}

// TestQuotasOfAnAddress: an address is found however it is written.
func TestQuotasOfAnAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{})
		c := n.dial()
		c.do(1, alterQuotas(false, quotaEntry(quotaEntity("ip", "2001:DB8:0::1"), setQuota("connection_creation_rate", 7)),
			quotaEntry(quotaEntity("ip", "::ffff:10.0.0.1"), setQuota("connection_creation_rate", 7))))
		for name, want := range map[string]string{
			"2001:DB8:0::1": "2001:db8::1", "2001:db8::1": "2001:db8::1", "::ffff:10.0.0.1": "10.0.0.1", "10.0.0.1": "10.0.0.1", "10.0.0.2": "", "host": "",
		} {
			found := c.do(1, describeQuotas(false, component("ip", matchExact, name))).(*kmsg.DescribeClientQuotasResponse).Entries
			if (want == "") != (len(found) == 0) || want != "" && *found[0].Entity[0].Name != want {
				t.Errorf("%s: %+v", name, found)
			}
		}
	})
}

// TestQuotasOfManyNames: as many types or keys as fit a frame are gone through once, not each against all others, which would take
// longer than a test may.
func TestQuotasOfManyNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{})
		types, keys := quotaEntry(nil), quotaEntry(quotaEntity("user", "u"))
		for i := range 500_000 {
			name := fmt.Sprintf("%07d", i)
			p := kmsg.NewAlterClientQuotasRequestEntryEntity()
			p.Type = name
			types.Entity = append(types.Entity, p)
			keys.Ops = append(keys.Ops, dropQuota(name))
		}
		keys.Ops = append(keys.Ops, dropQuota("0000000"))
		resp, err := n.server.alterClientQuotas(t.Context(), &Request{Key: 49, Version: 1, Body: alterQuotas(true, types, keys)})
		check(t, err)
		for i, e := range resp.(*kmsg.AlterClientQuotasResponse).Entries {
			if e.ErrorCode != codeInvalidRequest.int16() || i == 0 && len(e.Entity) != len(types.Entity) {
				t.Errorf("entry %d: code %d, %d types", i, e.ErrorCode, len(e.Entity))
			}
		}
	})
}

// settleQuotas gives an oracle the time to show a change on the node that is asked.
func (x *adminScript) settleQuotas() {
	if x.oracle {
		time.Sleep(500 * time.Millisecond)
	}
}

func TestDescribeClientQuotas(t *testing.T) {
	x := newAdminScript(t)
	u, c, ip := x.topic("u"), x.topic("c"), "127.8.8.8"
	rate := setQuota("producer_byte_rate", 1000)
	var entries []kmsg.AlterClientQuotasRequestEntry
	for _, e := range [][]string{
		{"user", u}, {"user", "<default>"}, {"client-id", c}, {"client-id", "<default>"}, {"user", u, "client-id", c}, {"user", u, "client-id", "<default>"},
		{"user", "<default>", "client-id", c}, {"user", "<default>", "client-id", "<default>"}, {"user", x.topic("other"), "client-id", c},
	} {
		entries = append(entries, quotaEntry(quotaEntity(e...), rate))
	}
	entries = append(entries, quotaEntry(quotaEntity("ip", ip), setQuota("connection_creation_rate", 5)), quotaEntry(quotaEntity("ip", "<default>"), setQuota("connection_creation_rate", 50000)))
	x.quiet(1, alterQuotas(false, entries...))
	x.settleQuotas()
	for v := int16(0); v <= 1; v++ {
		x.do("user", v, describeQuotas(false, component("user", matchExact, u)))
		x.do("user, strict", v, describeQuotas(true, component("user", matchExact, u)))
	}
	ask := func(name string, components ...kmsg.DescribeClientQuotasRequestComponent) {
		x.do(name, 1, describeQuotas(false, components...))
		x.do(name+", strict", 1, describeQuotas(true, components...))
	}
	ask("default user", component("user", matchDefault))
	ask("default client id", component("client-id", matchDefault))
	ask("any user and one client id", component("user", matchAny), component("client-id", matchExact, c))
	ask("user and any client id", component("user", matchExact, u), component("client-id", matchAny))
	ask("user and default client id", component("user", matchExact, u), component("client-id", matchDefault))
	ask("both defaults", component("user", matchDefault), component("client-id", matchDefault))
	ask("ip", component("ip", matchExact, ip))
	ask("default ip", component("ip", matchDefault))
	ask("nobody", component("user", matchExact, x.topic("nobody")))
	ask("ip and user", component("ip", matchExact, ip), component("user", matchExact, u))
	ask("unknown type", component("group", matchExact, "g"))
	ask("empty type", component("", matchExact, "g"))
	ask("type twice", component("user", matchExact, u), component("user", matchExact, u))
	ask("exact without a name", component("user", matchExact))
	ask("default with a name", component("user", matchDefault, u))
	ask("any with a name", component("user", matchAny, u))
	ask("unknown match", component("user", 7, u))
	for i := range entries {
		for j := range entries[i].Ops {
			entries[i].Ops[j].Remove = true
		}
	}
	x.do("away with them", 1, alterQuotas(false, entries...))
	x.settleQuotas()
	ask("user, afterwards", component("user", matchExact, u))
	x.golden("48_describe_client_quotas")
}

// TestQuotaFromTheAnswerOn: a quota holds on the node that was asked once its change is answered, though others that hear of images are slow.
func TestQuotaFromTheAnswerOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var slow atomic.Bool
		release := make(chan struct{})
		n := startNode(t, nodeOptions{opened: func(m *metadata.Store) {
			m.Subscribe(func(_, _ *metadata.Image) {
				if slow.Load() {
					<-release
				}
			})
		}})
		c := n.dial()
		synctest.Wait()
		slow.Store(true)
		r := c.do(1, alterQuotas(false, quotaEntry(quotaEntity("client-id", "c"), setQuota(quota.Produce.Key(), 10)))).(*kmsg.AlterClientQuotasResponse)
		has := n.server.quotas.table().Has(quota.Produce)
		slow.Store(false)
		close(release)
		if r.Entries[0].ErrorCode != 0 || !has {
			t.Errorf("code %d, the quota holds: %t", r.Entries[0].ErrorCode, has)
		}
	})
}

// TestMutationQuota: a bucket of eleven seconds' worth of partitions. Versions that know the refusal are refused when it is empty,
// older ones are served and wait.
func TestMutationQuota(t *testing.T) {
	x := newAdminScript(t)
	me := quotaEntity("client-id", "script")
	limit := func(rate float64) {
		x.quiet(1, alterQuotas(false, quotaEntry(me, setQuota(quota.Mutation.Key(), rate))))
		x.settleQuotas()
	}
	x.makeTopic("grows", 2)
	x.makeTopic("goes", 1)
	// The oracle's clock runs while the script does: the rate is so low that nothing flows back meanwhile.
	limit(1)
	ask := func(name string, v int16, req kmsg.Request) {
		x.wire.close() // the connection before may be muted for a long time
		throttled, _ := x.do(name, v, req).(kmsg.ThrottleResponse).Throttle()
		x.note("  throttled: %t", throttled > 0)
	}
	create := func(name string, v int16, validate bool, partitions int32) {
		ask(name, v, createRequest(validate, newTopic{name: x.topic(name), partitions: partitions, rf: 1}))
	}
	grow := func(name string, v int16, n int32) {
		req := kmsg.NewPtrCreatePartitionsRequest()
		req.TimeoutMillis = 10000
		g := kmsg.NewCreatePartitionsRequestTopic()
		g.Topic, g.Count = x.topic("grows"), n
		req.Topics = append(req.Topics, g)
		ask(name, v, req)
	}
	remove := func(name string, v int16) {
		req := kmsg.NewPtrDeleteTopicsRequest()
		req.TimeoutMillis, req.TopicNames = 10000, []string{x.topic("goes")}
		ask(name, v, req)
	}
	create("validated", 7, true, 11)
	limit(0.001)
	create("all-that-is-left", 7, false, 5)
	create("refused", 7, false, 1)
	create("refused-validate-only", 7, true, 1)
	create("bad name beside it", 7, true, 1)
	grow("grow, refused", 3, 3)
	remove("delete, refused", 5)
	grow("grow, served", 2, 4)
	remove("delete, served", 4)
	create("served", 5, false, 1)
	x.wire.close()
	x.quiet(1, alterQuotas(false, quotaEntry(me, dropQuota(quota.Mutation.Key()))))
	x.golden("49_mutation_quota")
}
