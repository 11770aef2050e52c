// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"slices"
	"strings"
)

type scopeTable struct {
	byName map[string]*Def
	sorted []*Def
}

var registry = buildRegistry()

func buildRegistry() [scopes]scopeTable {
	var r [scopes]scopeTable
	for _, defs := range [][]*Def{topicDefs(), brokerDefs(), brokerConsumerDefs(), brokerAcceptedDefs(), varveDefs(), groupDefs(), clientMetricsDefs()} {
		for _, d := range defs {
			t := &r[d.Scope]
			if t.byName == nil {
				t.byName = make(map[string]*Def)
			}
			if t.byName[d.Name] != nil {
				panic("config: " + d.Scope.String() + " config " + d.Name + " is in the tables twice")
			}
			t.byName[d.Name] = d
			t.sorted = append(t.sorted, d)
		}
	}
	r[BrokerDefaultScope] = r[BrokerScope]
	for i := range r {
		slices.SortFunc(r[i].sorted, func(a, b *Def) int { return strings.Compare(a.Name, b.Name) })
	}
	return r
}

// Lookup finds a config by its exact name.
func Lookup(s Scope, name string) (*Def, bool) {
	d, ok := registry[s].byName[name]
	return d, ok
}

// All lists the configs of a scope by name. The slice is shared: do not change it.
func All(s Scope) []*Def { return registry[s].sorted }

// find is Lookup with the error that names what is unknown (C1).
func find(s Scope, name string) (*Def, error) {
	if d, ok := Lookup(s, name); ok {
		return d, nil
	}
	return nil, fmt.Errorf("%w: there is no %s config named %q", ErrUnknown, s, name)
}

// mustFind is for names that this package itself writes.
func mustFind(s Scope, name string) *Def {
	d, err := find(s, name)
	if err != nil {
		panic(err)
	}
	return d
}
