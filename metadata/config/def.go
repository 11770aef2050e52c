// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Type is a config's value type, numbered as DescribeConfigs numbers it.
type Type int8

const (
	Boolean  Type = 1
	String   Type = 2
	Int      Type = 3
	Short    Type = 4
	Long     Type = 5
	Double   Type = 6
	List     Type = 7
	Class    Type = 8
	Password Type = 9
)

var typeNames = [...]string{"unknown", "boolean", "string", "int", "short", "long", "double", "list", "class", "password"}

func (t Type) String() string { return typeNames[t] }

// Scope is the kind of resource a config belongs to.
type Scope int8

const (
	TopicScope Scope = iota
	BrokerScope
	GroupScope
	ClientMetricsScope
	BrokerDefaultScope // the broker configs, as set for all brokers at once
	scopes
)

var scopeNames = [...]string{"topic", "broker", "group", "client-metrics", "broker"}

func (s Scope) String() string { return scopeNames[s] }

// Update tells how a config may change while the broker runs.
type Update int8

const (
	ReadOnly    Update = iota // only by a restart
	PerBroker                 // per broker, not for all at once
	ClusterWide               // per broker or for all
)

// Effect tells what a config does in Varve.
type Effect int8

const (
	Matters  Effect = iota
	Accepted        // accepted, stored and reported, for clients and tools that set or read it; nothing follows from it
)

// Synonym names a broker config that a config falls back to. A value of it times Factor is in the config's own unit.
type Synonym struct {
	Name   string
	Factor int64
}

// Def is one config of the registry. Defs are made by the tables of this package and never change.
type Def struct {
	Name      string
	Scope     Scope
	Type      Type
	Default   string
	Null      bool     // there is no default: the value is null until set
	Min, Max  float64  // numeric bounds; ±Inf when open
	OneOf     []string // allowed values of a String or Boolean, allowed elements of a List
	Update    Update
	Sensitive bool
	Internal  bool // for tests: accepted, but listed only when set
	Synonyms  []Synonym
	Doc       string
	Effect    Effect

	emptyOK bool               // a List may be empty
	dupsOK  bool               // a List may name an element twice
	also    string             // a String or number outside the bounds that is allowed as well
	check   func(string) error // what type and bounds cannot say
}

// Dynamic tells whether the config can change without a restart. Every topic, group and client-metrics config can.
func (d *Def) Dynamic() bool { return d.Update != ReadOnly }

// Validate tells whether value may be set. The error names the key, the value and what is allowed.
func (d *Def) Validate(value string) error {
	if d.also != "" && value == d.also {
		return nil
	}
	var ok bool
	switch d.Type {
	case Boolean:
		ok = isTrue(value) || isFalse(value)
	case Int, Short, Long:
		n, err := strconv.ParseInt(strings.TrimSpace(value), 10, d.bits())
		ok = err == nil && float64(n) >= d.Min && float64(n) <= d.Max
	case Double:
		f, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		ok = err == nil && !math.IsNaN(f) && f >= d.Min && f <= d.Max
	case List:
		ok = d.validList(value)
	default:
		ok = len(d.OneOf) == 0 || slices.Contains(d.OneOf, value)
	}
	if ok && d.check != nil {
		ok = d.check(value) == nil
	}
	if !ok {
		return fmt.Errorf("%w: %s=%s: must be %s", ErrInvalid, d.Name, d.shown(value), d.Allowed())
	}
	return nil
}

// shown keeps secrets out of messages and logs.
func (d *Def) shown(value string) string {
	if d.Sensitive {
		return "(hidden)"
	}
	return strconv.Quote(value)
}

func (d *Def) validList(value string) bool {
	items := splitList(value)
	if len(items) == 0 {
		return d.emptyOK
	}
	seen := make(map[string]bool, len(items))
	for _, item := range items {
		if item == "" || (seen[item] && !d.dupsOK) {
			return false
		}
		if len(d.OneOf) > 0 && !slices.Contains(d.OneOf, item) {
			return false
		}
		seen[item] = true
	}
	return true
}

func (d *Def) bits() int {
	switch d.Type {
	case Short:
		return 16
	case Int:
		return 32
	}
	return 64
}

// Allowed says in words which values Validate accepts.
func (d *Def) Allowed() string {
	var s string
	switch d.Type {
	case Boolean:
		s = "true or false"
		if len(d.OneOf) > 0 {
			s = strings.Join(d.OneOf, " or ")
		}
	case Int, Short, Long, Double:
		s = d.allowedNumber()
	case List:
		s = "a comma-separated list without empty or repeated elements"
		if d.dupsOK {
			s = "a comma-separated list without empty elements"
		}
		if len(d.OneOf) > 0 {
			s += " of " + strings.Join(d.OneOf, ", ")
		}
		if d.emptyOK {
			s += ", or empty"
		}
	default:
		s = "a " + d.Type.String()
		if len(d.OneOf) > 0 {
			s = "one of " + strings.Join(d.OneOf, ", ")
		}
	}
	if d.also != "" {
		s += ", or " + d.also
	}
	return s
}

func (d *Def) allowedNumber() string {
	kind := "a whole number"
	if d.Type == Double {
		kind = "a number"
	}
	low, high := d.Min, d.Max
	typeMax := math.Ldexp(1, d.bits()-1) - 1
	switch openLow, openHigh := math.IsInf(low, -1), math.IsInf(high, 1) || (d.Type != Double && high >= typeMax); {
	case openLow && openHigh:
		return kind + " of type " + d.Type.String()
	case openHigh:
		return fmt.Sprintf("%s of at least %s", kind, plain(low))
	case openLow:
		return fmt.Sprintf("%s of at most %s", kind, plain(high))
	}
	return fmt.Sprintf("%s from %s to %s", kind, plain(low), plain(high))
}

func plain(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

func isTrue(s string) bool  { return strings.EqualFold(strings.TrimSpace(s), "true") }
func isFalse(s string) bool { return strings.EqualFold(strings.TrimSpace(s), "false") }

// splitList cuts a list value as Kafka does: at commas, spaces around an element dropped, nothing at all is the empty list.
func splitList(value string) []string {
	value = strings.TrimSpace(value)
	if value == "" {
		return nil
	}
	items := strings.Split(value, ",")
	for i := range items {
		items[i] = strings.TrimSpace(items[i])
	}
	return items
}
