// SPDX-License-Identifier: Apache-2.0

package config

import "math"

// The tables below read as sentences: what it is, then what it allows, then where it falls back to, then what it means.

func def(s Scope, name string, t Type, dflt string) *Def {
	return &Def{Name: name, Scope: s, Type: t, Default: dflt, Min: math.Inf(-1), Max: math.Inf(1), Update: ClusterWide}
}

func topic(name string, t Type, dflt string) *Def { return def(TopicScope, name, t, dflt) }

// broker configs are read-only unless the table says dynamic or perBroker.
func broker(name string, t Type, dflt string) *Def {
	d := def(BrokerScope, name, t, dflt)
	d.Update = ReadOnly
	return d
}

// unset is a broker config without default.
func unset(name string, t Type) *Def {
	d := broker(name, t, "")
	d.Null = true
	d.Sensitive = t == Password
	return d
}

func group(name string, t Type, dflt string) *Def { return def(GroupScope, name, t, dflt) }

func (d *Def) min(n float64) *Def          { d.Min = n; return d }
func (d *Def) max(n float64) *Def          { d.Max = n; return d }
func (d *Def) oneOf(values ...string) *Def { d.OneOf = values; return d }
func (d *Def) or(value string) *Def        { d.also = value; return d }
func (d *Def) maybeEmpty() *Def            { d.emptyOK = true; return d }
func (d *Def) repeats() *Def               { d.dupsOK = true; return d }
func (d *Def) dynamic() *Def               { d.Update = ClusterWide; return d }
func (d *Def) perBroker() *Def             { d.Update = PerBroker; return d }
func (d *Def) fixed() *Def                 { d.Update = ReadOnly; return d }
func (d *Def) noEffect() *Def              { d.Effect = Accepted; return d }
func (d *Def) internal() *Def              { d.Internal = true; return d }
func (d *Def) null() *Def                  { d.Null = true; return d }
func (d *Def) doc(text string) *Def        { d.Doc = text; return d }

func (d *Def) must(check func(string) error) *Def { d.check = check; return d }

// from names the broker config that the value falls back to, best first when called again.
func (d *Def) from(name string) *Def { return d.fromTimes(name, 1) }

func (d *Def) fromTimes(name string, factor int64) *Def {
	d.Synonyms = append(d.Synonyms, Synonym{name, factor})
	return d
}
