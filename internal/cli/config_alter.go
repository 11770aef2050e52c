// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"maps"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/metadata/config"
)

// Resource types of Kafka's config requests.
const (
	topicResource  = kmsg.ConfigResourceTypeTopic
	brokerResource = kmsg.ConfigResourceTypeBroker
	groupResource  = kmsg.ConfigResourceTypeGroupConfig
)

// resource names what a config belongs to. A broker resource with an empty name is the cluster-wide default.
type resource struct {
	kind kmsg.ConfigResourceType
	name string
}

func (r resource) String() string {
	switch r.kind {
	case topicResource:
		return "topic " + r.name
	case groupResource:
		return "group " + r.name
	}
	if r.name == "" {
		return "all brokers"
	}
	return "broker " + r.name
}

// configChange sets a config, or takes its value away when value is nil.
type configChange struct {
	key   string
	value *string
}

// configChanges reads what to set and to unset; flag is where the first stood, "" for arguments.
func configChanges(flag string, set, unset []string) ([]configChange, error) {
	kv, err := parseConfigs(flag, set)
	if err != nil {
		return nil, err
	}
	var changes []configChange
	for _, k := range sortedKeys(kv) {
		v := kv[k]
		changes = append(changes, configChange{k, &v})
	}
	for _, k := range unset {
		if _, both := kv[k]; both {
			return nil, usagef("%s is both set and deleted", k)
		}
		changes = append(changes, configChange{key: k})
	}
	return changes, nil
}

// checkUnset refuses names that no config has: brokers take such an unset, as Kafka's do, and it does nothing. A name that only the broker knows, as
// one of another release, is found by asking it.
func checkUnset(ctx context.Context, adm *admin, r resource, changes []configChange) error {
	scope := map[kmsg.ConfigResourceType]config.Scope{topicResource: config.TopicScope, groupResource: config.GroupScope, brokerResource: config.BrokerScope}[r.kind]
	for _, c := range changes {
		if _, known := config.Lookup(scope, c.key); known || c.value != nil {
			continue
		}
		there, err := describeConfigs(ctx, adm, r, []string{c.key}, false)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(there, func(d describedConfig) bool { return d.Name == c.key }) {
			continue
		}
		var names []string
		for _, d := range config.All(scope) {
			names = append(names, d.Name)
		}
		text := "there is no " + scope.String() + " config " + strconv.Quote(c.key)
		if meant := nearest(c.key, names); meant != "" {
			text += "; did you mean " + meant + "?"
		}
		return answered("changing configs of "+r.String(), kerr.InvalidConfig, text)
	}
	return nil
}

// policyOf is the cleanup.policy that the changes set, "" for none.
func policyOf(changes []configChange) string {
	for _, c := range changes {
		if c.key == "cleanup.policy" {
			return deref(c.value)
		}
	}
	return ""
}

// alterConfigs sends one IncrementalAlterConfigs; the library's own helper has no group resources.
func alterConfigs(ctx context.Context, adm *admin, r resource, changes []configChange, dryRun bool) error {
	doing := "changing configs of " + r.String()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.ValidateOnly = dryRun
	rr := kmsg.NewIncrementalAlterConfigsRequestResource()
	rr.ResourceType, rr.ResourceName = r.kind, r.name
	for _, c := range changes {
		rc := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		rc.Name, rc.Value = c.key, c.value
		rc.Op = kmsg.IncrementalAlterConfigOpSet
		if c.value == nil {
			rc.Op = kmsg.IncrementalAlterConfigOpDelete
		}
		rr.Configs = append(rr.Configs, rc)
	}
	req.Resources = append(req.Resources, rr)
	var target requestor = adm.kafka
	if r.kind == brokerResource && r.name != "" {
		id, err := strconv.ParseInt(r.name, 10, 32)
		if err != nil {
			return usagef("--broker %q is not a node id", r.name)
		}
		target = adm.kafka.Broker(int(id)) // only that broker answers for itself
	}
	resp, err := target.Request(ctx, req)
	if err != nil {
		return explain(doing, err)
	}
	for _, res := range resp.(*kmsg.IncrementalAlterConfigsResponse).Resources {
		message := deref(res.ErrorMessage)
		if err := answered(doing, kerr.ErrorForCode(res.ErrorCode), message); err != nil {
			return err
		}
	}
	return nil
}

// requestor is what a client and one of its brokers have in common.
type requestor interface {
	Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error)
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
