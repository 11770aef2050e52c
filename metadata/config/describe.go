// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strconv"
	"strings"
)

// Source tells where a value comes from, numbered as DescribeConfigs numbers it.
type Source int8

const (
	SourceTopic                Source = 1
	SourceDynamicBroker        Source = 2
	SourceDynamicDefaultBroker Source = 3
	SourceStaticBroker         Source = 4
	SourceDefault              Source = 5
	SourceClientMetrics        Source = 7
	SourceGroup                Source = 8
)

// Entry describes one config of a resource.
type Entry struct {
	Name      string
	Value     *string // nil: null, or a secret
	Source    Source
	ReadOnly  bool
	Sensitive bool
	Type      Type
	Doc       string
	Synonyms  []SynonymValue // everything that could give the value, in the order of precedence; the first does
}

// SynonymValue is one candidate for a value.
type SynonymValue struct {
	Name   string
	Value  *string
	Source Source
}

// InForce lets the caller show what an automatic value stands for at the moment, such as default.replication.factor=auto. It
// gets the configured value and returns what to show. Nil shows values as configured.
type InForce func(name, value string) string

// DescribeTopic lists every topic config with its value in force, by name.
func DescribeTopic(overrides map[string]string, b *Broker) []Entry {
	return describeOverridable(TopicScope, SourceTopic, overrides, b)
}

// DescribeGroup lists every group config with its value in force, by name.
func DescribeGroup(overrides map[string]string, b *Broker) []Entry {
	return describeOverridable(GroupScope, SourceGroup, overrides, b)
}

// DescribeClientMetrics lists the configs of a client-metrics subscription.
func DescribeClientMetrics(overrides map[string]string) []Entry {
	return describeOverridable(ClientMetricsScope, SourceClientMetrics, overrides, nil)
}

func describeOverridable(s Scope, own Source, overrides map[string]string, b *Broker) []Entry {
	entries := make([]Entry, 0, len(All(s)))
	for _, d := range All(s) {
		value, set := overrides[d.Name]
		if d.Internal && !set {
			continue
		}
		e := d.entry()
		e.ReadOnly = s == TopicScope && d.Update == ReadOnly
		if set {
			e.Synonyms = append(e.Synonyms, SynonymValue{d.Name, d.show(value), own})
		}
		e.Synonyms = append(e.Synonyms, b.candidates(d)...)
		e.Value, e.Source = d.show(effective(d, overrides, b)), SourceDefault
		if len(e.Synonyms) > 0 {
			e.Source = e.Synonyms[0].Source
		}
		entries = append(entries, e)
	}
	return entries
}

// candidates are the broker's values that a topic or group config falls back to. Kafka lists none at all when the best synonym
// is not set (retention.ms with only log.retention.hours given); here one that somebody set is listed, so that the source named
// is the source in force.
func (b *Broker) candidates(d *Def) []SynonymValue {
	if b == nil || len(d.Synonyms) == 0 {
		return nil
	}
	names := make([]string, len(d.Synonyms))
	for i, s := range d.Synonyms {
		names[i] = s.Name
	}
	all := b.layers(names, nil)
	if len(all) > 0 && all[0].Source == SourceDefault && all[0].Name != names[0] {
		return nil
	}
	return all
}

// layers lists the values of the names: all that this broker was told dynamically, then the cluster, then at start, then defaults.
func (b *Broker) layers(names []string, show InForce) []SynonymValue {
	var all []SynonymValue
	for _, layer := range [...]struct {
		values map[string]string
		source Source
	}{{b.dynamicNode, SourceDynamicBroker}, {b.dynamicDefault, SourceDynamicDefaultBroker}, {b.static, SourceStaticBroker}} {
		for _, name := range names {
			if v, ok := layer.values[name]; ok {
				all = append(all, SynonymValue{name, mustFind(BrokerScope, name).showAs(v, show), layer.source})
			}
		}
	}
	for _, name := range names {
		if d := mustFind(BrokerScope, name); !d.Null {
			all = append(all, SynonymValue{name, d.showAs(d.Default, show), SourceDefault})
		}
	}
	return all
}

// brokerAliases are broker configs that mean the same thing in other units, best first.
var brokerAliases = [][]string{
	{"log.retention.ms", "log.retention.minutes", "log.retention.hours"},
	{"log.roll.ms", "log.roll.hours"},
	{"log.roll.jitter.ms", "log.roll.jitter.hours"},
}

func aliasesOf(name string) []string {
	for _, group := range brokerAliases {
		for _, alias := range group {
			if alias == name {
				return group
			}
		}
	}
	return []string{name}
}

// DescribeBroker lists every broker config with its value in force, by name.
func DescribeBroker(b *Broker, show InForce) []Entry {
	entries := make([]Entry, 0, len(All(BrokerScope)))
	for _, d := range All(BrokerScope) {
		e := d.entry()
		e.ReadOnly = d.Update == ReadOnly
		all := b.layers(aliasesOf(d.Name), show)
		for len(all) > 0 && all[0].Name != d.Name { // another name's value is not this one's
			all = all[1:]
		}
		e.Source = SourceDefault
		if len(all) > 0 {
			e.Value, e.Source, e.Synonyms = all[0].Value, all[0].Source, all
		}
		entries = append(entries, e)
	}
	return entries
}

// DescribeBrokerDefaults lists what is set for all brokers at once, by name.
func DescribeBrokerDefaults(dynamicDefault map[string]string) []Entry {
	var entries []Entry
	for _, d := range All(BrokerScope) {
		v, ok := dynamicDefault[d.Name]
		if !ok {
			continue
		}
		e := d.entry()
		e.ReadOnly = d.Update == ReadOnly
		e.Value, e.Source = d.show(v), SourceDynamicDefaultBroker
		e.Synonyms = []SynonymValue{{d.Name, e.Value, e.Source}}
		entries = append(entries, e)
	}
	return entries
}

func (d *Def) entry() Entry {
	return Entry{Name: d.Name, Sensitive: d.Sensitive, Type: d.Type, Doc: d.Doc}
}

func (d *Def) show(value string) *string { return d.showAs(value, nil) }

func (d *Def) showAs(value string, show InForce) *string {
	if d.Sensitive || (d.Null && value == "") {
		return nil
	}
	if show != nil {
		value = show(d.Name, value)
	}
	value = d.canonical(value)
	return &value
}

// canonical is a value as Kafka shows it, whatever spelling it was set with: tools compare what they set with what they are shown.
func (d *Def) canonical(value string) string {
	trimmed := strings.TrimSpace(value)
	switch d.Type {
	case Boolean:
		if isTrue(value) || isFalse(value) {
			return strings.ToLower(trimmed)
		}
	case Int, Short, Long:
		if n, err := strconv.ParseInt(trimmed, 10, 64); err == nil {
			return strconv.FormatInt(n, 10)
		}
	case Double:
		if f, err := strconv.ParseFloat(trimmed, 64); err == nil {
			s := plain(f)
			if !strings.Contains(s, ".") {
				s += ".0"
			}
			return s
		}
	case List:
		return strings.Join(splitList(value), ",")
	}
	return value
}
