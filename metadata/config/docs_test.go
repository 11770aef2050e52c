// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/varve/varve/internal/golden"
)

// TestDocsTable keeps docs/configs.md what the registry says. Run with -rewrite after a change of the tables.
func TestDocsTable(t *testing.T) {
	path := filepath.Join("..", "..", "docs", "configs.md")
	golden.Check(t, path, docsTable())
}

func docsTable() string {
	var b strings.Builder
	b.WriteString("# Configs\n\n" +
		"Made from the registry (`metadata/config`) by its test with `-rewrite`; do not edit by hand.\n\n" +
		"A value set for the topic goes before the broker's own dynamic value, that before the cluster-wide dynamic value, that before\n" +
		"what the broker was started with (`--set`, file, environment), that before the default. Where a config falls back to several\n" +
		"broker configs, the first that is set counts.\n\n")
	sections := []struct {
		scope Scope
		title string
	}{{TopicScope, "Topic configs"}, {BrokerScope, "Broker configs"}, {GroupScope, "Group configs"}, {ClientMetricsScope, "Client-metrics configs"}}
	for _, s := range sections {
		for _, effect := range []Effect{Matters, Accepted} {
			docsSection(&b, s.title, s.scope, effect)
		}
	}
	return b.String()
}

func docsSection(b *strings.Builder, title string, s Scope, e Effect) {
	var rows []string
	for _, d := range All(s) {
		if d.Effect == e {
			rows = append(rows, docsRow(d))
		}
	}
	if len(rows) == 0 {
		return
	}
	if e == Accepted {
		title += ", accepted without effect"
	}
	fmt.Fprintf(b, "## %s\n\n| name | type | default | allowed | changes | falls back to | what it does |\n|---|---|---|---|---|---|---|\n%s\n\n",
		title, strings.Join(rows, "\n"))
}

func docsRow(d *Def) string {
	dflt := "`" + d.Default + "`"
	switch {
	case d.Null:
		dflt = "none"
	case d.Default == "":
		dflt = "empty"
	}
	changes := map[Update]string{ReadOnly: "at start", PerBroker: "per broker", ClusterWide: "any time"}[d.Update]
	if d.Scope == TopicScope && d.Update == ReadOnly {
		changes = "never"
	}
	var syn []string
	for _, x := range d.Synonyms {
		name := "`" + x.Name + "`"
		if x.Factor != 1 {
			name += fmt.Sprintf(" × %d", x.Factor)
		}
		syn = append(syn, name)
	}
	cells := []string{"`" + d.Name + "`", d.Type.String(), dflt, d.Allowed(), changes, strings.Join(syn, ", "), d.Doc}
	for i := range cells {
		cells[i] = strings.ReplaceAll(cells[i], "|", `\|`)
	}
	return "| " + strings.Join(cells, " | ") + " |"
}
