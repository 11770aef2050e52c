// SPDX-License-Identifier: Apache-2.0

package quota

import "github.com/varve/varve/metadata"

// Kind is what a quota limits.
type Kind int8

// The kinds. Values of Produce and Fetch are bytes per second, of Request percent of one processor, of Mutation changed
// partitions per second, of Connection connections per second.
const (
	Produce Kind = iota
	Fetch
	Request
	Mutation
	Connection
	Kinds
)

// keys are the names under which the kinds are stored, Kafka's.
var keys = [Kinds]string{"producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate", "connection_creation_rate"}

// Key is the stored name of a kind.
func (k Kind) Key() string { return keys[k] }

// Client is who is metered together: with the user alone all clients of the user, with the client id alone all users of it. For
// Connection User is the address.
type Client struct{ User, ID string }

// Table is what quotas there are, immutable. A nil *Table has none.
type Table struct {
	limits [Kinds]map[metadata.QuotaEntity]float64
}

// NewTable sorts quotas by kind; nil when there are none.
func NewTable(q *metadata.Quotas) *Table {
	var t *Table
	for e, values := range q.All() {
		for k, key := range keys {
			limit, ok := values[key]
			if !ok {
				continue
			}
			if t == nil {
				t = &Table{}
			}
			if t.limits[k] == nil {
				t.limits[k] = map[metadata.QuotaEntity]float64{}
			}
			t.limits[k][e] = limit
		}
	}
	return t
}

// Has tells whether anybody has a quota of the kind.
func (t *Table) Has(k Kind) bool { return t != nil && t.limits[k] != nil }

// Limit finds the quota of the kind that holds for a client, and who shares it (U1).
func (t *Table) Limit(k Kind, c Client) (limit float64, metered Client, ok bool) {
	limit, _, metered, ok = t.find(k, c)
	return limit, metered, ok
}

// find is Limit, and tells by which entity.
func (t *Table) find(k Kind, c Client) (limit float64, by metadata.QuotaEntity, metered Client, ok bool) {
	if !t.Has(k) {
		return 0, by, Client{}, false
	}
	if k == Connection {
		return t.limitOf(k, c.User)
	}
	user, id := namedPart(c.User), namedPart(c.ID)
	for i := range precedence {
		p := &precedence[i]
		by = metadata.QuotaEntity{User: p.user.part(user), ClientID: p.id.part(id)}
		if limit, ok = t.limits[k][by]; ok {
			if p.id == absent {
				c.ID = ""
			}
			if p.user == absent {
				c.User = ""
			}
			return limit, by, c, true
		}
	}
	return 0, metadata.QuotaEntity{}, Client{}, false
}

func (t *Table) limitOf(k Kind, address string) (limit float64, by metadata.QuotaEntity, metered Client, ok bool) {
	by.IP = namedPart(address)
	if limit, ok = t.limits[k][by]; !ok {
		by.IP = metadata.QuotaPart{Is: metadata.QuotaDefault}
		limit, ok = t.limits[k][by]
	}
	return limit, by, Client{User: address}, ok
}

func namedPart(name string) metadata.QuotaPart {
	return metadata.QuotaPart{Is: metadata.QuotaNamed, Name: name}
}

// level is how an entity of the precedence gives a dimension.
type level int8

const (
	absent level = iota
	byDefault
	byName
)

func (l level) part(name metadata.QuotaPart) metadata.QuotaPart {
	switch l {
	case byName:
		return name
	case byDefault:
		return metadata.QuotaPart{Is: metadata.QuotaDefault}
	}
	return metadata.QuotaPart{}
}

// precedence is Kafka's: the first entity that has a quota counts.
var precedence = [...]struct{ user, id level }{
	{byName, byName},
	{byName, byDefault},
	{byName, absent},
	{byDefault, byName},
	{byDefault, byDefault},
	{byDefault, absent},
	{absent, byName},
	{absent, byDefault},
}
