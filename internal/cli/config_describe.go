// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

type describedConfig struct {
	Name          string          `json:"name"`
	Value         *string         `json:"value"` // null when sensitive
	Source        string          `json:"source"`
	Type          string          `json:"type,omitempty"`
	ReadOnly      bool            `json:"readOnly,omitempty"`
	Sensitive     bool            `json:"sensitive,omitempty"`
	Synonyms      []configSynonym `json:"synonyms,omitempty"`
	Documentation string          `json:"documentation,omitempty"`
}

type configSynonym struct {
	Name   string  `json:"name"`
	Value  *string `json:"value"`
	Source string  `json:"source"`
}

func newConfigDescribeCommand(s *streams) *cobra.Command {
	var all, docs bool
	cmd := &cobra.Command{
		Use:   "describe [KEY...]",
		Short: "Show configs: those that are set, all of them with --all, or the named ones",
		Example: "  varve config describe --topic logs --all\n  varve config describe --broker 1 varve.hot.bytes\n" +
			"  varve config describe --brokers",
	}
	cmd.Flags().BoolVar(&all, "all", false, "those at their default too")
	cmd.Flags().BoolVar(&docs, "docs", false, "with documentation")
	whose, conn, out := addResource(cmd), addConnection(cmd), addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, keys []string) error {
		r, err := whose.resource()
		if err != nil {
			return err
		}
		ctx, adm, done, err := conn.administer(cmd.Context())
		if err != nil {
			return err
		}
		defer done()
		configs, err := describeConfigs(ctx, adm, r, keys, docs)
		if err != nil {
			return err
		}
		for _, key := range keys {
			if !slices.ContainsFunc(configs, func(c describedConfig) bool { return c.Name == key }) {
				return answered("describing "+r.String(), kerr.InvalidConfig, "there is no config "+key+"; --all lists them")
			}
		}
		if !all && len(keys) == 0 {
			configs = slices.DeleteFunc(configs, func(c describedConfig) bool { return c.Source == "default" })
		}
		return out.show(s.out, configs, configTable(configs, docs))
	}
	return cmd
}

func describeConfigs(ctx context.Context, adm *admin, r resource, keys []string, docs bool) ([]describedConfig, error) {
	doing := "describing configs of " + r.String()
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.IncludeSynonyms, req.IncludeDocumentation = true, docs
	rr := kmsg.NewDescribeConfigsRequestResource()
	rr.ResourceType, rr.ResourceName = r.kind, r.name
	if len(keys) > 0 {
		rr.ConfigNames = keys
	}
	req.Resources = append(req.Resources, rr)
	var target requestor = adm.kafka
	if r.kind == brokerResource && r.name != "" {
		id, err := strconv.Atoi(r.name)
		if err != nil {
			return nil, usagef("--broker %q is not a node id", r.name)
		}
		target = adm.kafka.Broker(id)
	}
	resp, err := target.Request(ctx, req)
	if err != nil {
		return nil, explain(doing, err)
	}
	configs := []describedConfig{}
	for _, res := range resp.(*kmsg.DescribeConfigsResponse).Resources {
		if err := kerr.ErrorForCode(res.ErrorCode); err != nil {
			message := deref(res.ErrorMessage)
			return nil, answered(doing, err, message)
		}
		for _, c := range res.Configs {
			configs = append(configs, describeConfig(c))
		}
	}
	slices.SortFunc(configs, func(a, b describedConfig) int { return strings.Compare(a.Name, b.Name) })
	return configs, nil
}

func describeConfig(c kmsg.DescribeConfigsResponseResourceConfig) describedConfig {
	d := describedConfig{Name: c.Name, Value: c.Value, Source: sourceText(c.Source), ReadOnly: c.ReadOnly, Sensitive: c.IsSensitive}
	if c.ConfigType != 0 {
		d.Type = strings.ToLower(c.ConfigType.String())
	}
	if c.Documentation != nil {
		d.Documentation = *c.Documentation
	}
	for _, syn := range c.ConfigSynonyms {
		d.Synonyms = append(d.Synonyms, configSynonym{syn.Name, syn.Value, sourceText(syn.Source)})
	}
	return d
}

func sourceText(src kmsg.ConfigSource) string {
	switch src {
	case kmsg.ConfigSourceDynamicTopicConfig:
		return "topic"
	case kmsg.ConfigSourceDynamicBrokerConfig:
		return "broker"
	case kmsg.ConfigSourceDynamicDefaultBrokerConfig:
		return "all brokers"
	case kmsg.ConfigSourceStaticBrokerConfig:
		return "start of the broker"
	case kmsg.ConfigSourceDefaultConfig:
		return "default"
	}
	return strings.ToLower(strings.ReplaceAll(src.String(), "_", " "))
}

func configTable(configs []describedConfig, docs bool) *table {
	t := &table{header: []string{"config", "value", "set by", "note"}}
	if docs {
		t.header = append(t.header, "documentation")
	}
	for _, c := range configs {
		value, note := "", ""
		switch {
		case c.Sensitive:
			value = "(hidden)"
		case c.Value != nil:
			value = *c.Value
		}
		if c.ReadOnly {
			note = "read only"
		}
		if docs {
			t.add(c.Name, value, c.Source, note, oneLine(c.Documentation))
			continue
		}
		t.add(c.Name, value, c.Source, note)
	}
	return t
}
