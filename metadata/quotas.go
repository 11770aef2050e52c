// SPDX-License-Identifier: Apache-2.0

package metadata

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"
)

// QuotaPart is what an entity says of one of its dimensions.
type QuotaPart struct {
	Is   QuotaPartIs
	Name string // of QuotaNamed
}

// QuotaPartIs tells how a dimension of an entity is given.
type QuotaPartIs int8

// How a dimension is given: not at all, as the default for all names without a quota of their own, or by name.
const (
	QuotaAbsent QuotaPartIs = iota
	QuotaDefault
	QuotaNamed
)

// QuotaEntity is whom quotas are for: a user, a client id, both, or an address. It is a value that can be compared.
type QuotaEntity struct {
	User, ClientID, IP QuotaPart
}

// QuotaChange changes the quotas of one entity: what is set is put, then what is removed goes.
type QuotaChange struct {
	Entity QuotaEntity
	Set    map[string]float64
	Remove []string
}

// Quotas are all quotas of the cluster, immutable. A nil *Quotas has none.
type Quotas struct {
	entities map[QuotaEntity]quotaEntry
	changes  Revision // of the key that every change moves
}

type quotaEntry struct {
	values map[string]float64
	rev    Revision
}

// Len is the number of entities that have quotas.
func (q *Quotas) Len() int {
	if q == nil {
		return 0
	}
	return len(q.entities)
}

// All goes through the entities and their quotas, in no order. The maps must not be changed.
func (q *Quotas) All() iter.Seq2[QuotaEntity, map[string]float64] {
	return func(yield func(QuotaEntity, map[string]float64) bool) {
		if q == nil {
			return
		}
		for e, entry := range q.entities {
			if !yield(e, entry.values) {
				return
			}
		}
	}
}

// Of are the quotas of one entity, nil for none. The map must not be changed.
func (q *Quotas) Of(e QuotaEntity) map[string]float64 {
	if q == nil {
		return nil
	}
	return q.entities[e].values
}

// Quotas are the quotas of the cluster. The same pointer in two images means the same quotas.
func (i *Image) Quotas() *Quotas { return i.quotas }

// AlterQuotas changes quotas. At most quotaBatch entities change in one transaction, so a longer list may be applied in part when
// it fails. An entity without quotas has no key. The key that counts changes is compared and put by each one: without it a copy of a
// transaction that comes late could bring back quotas that were removed.
func (s *Store) AlterQuotas(ctx context.Context, changes []QuotaChange) (rev Revision, err error) {
	for len(changes) > 0 {
		n := min(len(changes), quotaBatch)
		if rev, err = s.alterQuotas(ctx, changes[:n]); err != nil {
			return rev, err
		}
		changes = changes[n:]
	}
	return rev, nil
}

func (s *Store) alterQuotas(ctx context.Context, changes []QuotaChange) (Revision, error) {
	counter := s.keys.key(kindQuota + quotaChanges)
	keys := []string{counter}
	for _, c := range changes {
		keys = append(keys, s.keys.quota(c.Entity))
	}
	for range maxConflicts {
		found, _, err := s.readKeys(ctx, keys...)
		if err != nil {
			return 0, err
		}
		c := newChange("changing the quotas of %d entities", len(changes))
		c.unchanged(counter, found[counter].ModRevision, ErrConflict)
		c.put(counter, begin(c.op, 0))
		c.mark = counter
		if err := s.putQuotas(c, changes, found); err != nil {
			return 0, err
		}
		rev, err := s.commit(ctx, c)
		if !errors.Is(err, ErrConflict) {
			return rev, err
		}
	}
	return 0, fmt.Errorf("changing quotas: %w", ErrConflict)
}

// putQuotas computes what the entities have after the changes. An entity that is named twice gets both changes.
func (s *Store) putQuotas(c *change, changes []QuotaChange, found map[string]KeyValue) error {
	next := map[string]map[string]float64{}
	for _, q := range changes {
		key := s.keys.quota(q.Entity)
		values, ok := next[key]
		if !ok {
			values = map[string]float64{}
			if kv, there := found[key]; there {
				var err error
				if values, err = decodeQuota(kv.Value); err != nil {
					return err
				}
			}
		}
		for name, v := range q.Set {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				return fmt.Errorf("quota %s=%v: %w: not a number that can be stored", name, v, ErrRefused)
			}
			values[name] = v
		}
		for _, name := range q.Remove {
			delete(values, name)
		}
		next[key] = values
	}
	for key, values := range next {
		kv, there := found[key]
		switch {
		case len(values) > 0:
			c.put(key, encodeJSON(values, c.op))
		case there:
			c.delete(key)
		default:
			continue
		}
		c.unchanged(key, kv.ModRevision, ErrConflict)
	}
	return nil
}

func decodeQuota(value []byte) (map[string]float64, error) {
	values := map[string]float64{}
	err := decodeJSON("quota", value, &values)
	return values, err
}

// quotaName is the key of an entity behind its section and kind: its dimensions in a fixed order, each "name=default" or
// "name=~escaped". Escaping leaves no '=', ',' or '~' in a name.
func quotaName(e QuotaEntity) string {
	var parts []string
	for _, d := range quotaDimensions {
		switch p := d.Of(&e); p.Is {
		case QuotaDefault:
			parts = append(parts, d.Name+"="+defaultEntry)
		case QuotaNamed:
			parts = append(parts, d.Name+"=~"+EscapeID(p.Name))
		}
	}
	return strings.Join(parts, ",")
}

// QuotaDimension is what an entity can be named by: Kafka's entity type, and where an entity has it.
type QuotaDimension struct {
	Name string
	Of   func(*QuotaEntity) *QuotaPart
}

// QuotaDimensions are those of every entity, in the order of keys and answers.
func QuotaDimensions() []QuotaDimension { return slices.Clone(quotaDimensions) }

var quotaDimensions = []QuotaDimension{
	{"user", func(e *QuotaEntity) *QuotaPart { return &e.User }},
	{"client-id", func(e *QuotaEntity) *QuotaPart { return &e.ClientID }},
	{"ip", func(e *QuotaEntity) *QuotaPart { return &e.IP }},
}

// parseQuotaName is the inverse of quotaName; it accepts nothing else.
func parseQuotaName(part string) (e QuotaEntity, err error) {
	for text := range strings.SplitSeq(part, ",") {
		name, value, _ := strings.Cut(text, "=")
		for _, d := range quotaDimensions {
			if d.Name != name {
				continue
			}
			if escaped, ok := strings.CutPrefix(value, "~"); ok {
				id, err := UnescapeID(escaped)
				if err != nil {
					return e, err
				}
				*d.Of(&e) = QuotaPart{QuotaNamed, id}
			} else if value == defaultEntry {
				*d.Of(&e) = QuotaPart{Is: QuotaDefault}
			}
		}
	}
	if e == (QuotaEntity{}) || quotaName(e) != part {
		return e, fmt.Errorf("%w: key part %q names no quota entity", ErrCorrupt, part)
	}
	return e, nil
}

func (e *edit) quota(rest string, ev *Event) error {
	if !e.quotas {
		next := &Quotas{entities: map[QuotaEntity]quotaEntry{}}
		if old := e.img.quotas; old != nil {
			next.changes = old.changes
			maps.Copy(next.entities, old.entities)
		}
		e.img.quotas, e.quotas = next, true
	}
	q := e.img.quotas
	if rest == quotaChanges {
		if q.changes = ev.ModRevision; ev.Deleted {
			q.changes = 0
		}
		return nil
	}
	entity, err := parseQuotaName(rest)
	if err != nil {
		return err
	}
	if ev.Deleted {
		delete(q.entities, entity)
		return nil
	}
	values, err := decodeQuota(ev.Value)
	q.entities[entity] = quotaEntry{values, ev.ModRevision}
	return err
}

// revision is that of a key of the kind, 0 when it is not there.
func (q *Quotas) revision(part string) Revision {
	if q == nil {
		return 0
	}
	if part == quotaChanges {
		return q.changes
	}
	e, err := parseQuotaName(part)
	if err != nil {
		return 0
	}
	return q.entities[e].rev
}
