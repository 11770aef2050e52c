// SPDX-License-Identifier: Apache-2.0

package metadata

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/varve/varve/record"
)

// Keys of the two sections; docs/formats/metadata.md has the table. What every node's image holds lies together under s/, so that
// one range read loads it and one watch follows it, in revision order over all kinds; what is read on demand lies under d/.
const (
	sectionState  = "s/"
	sectionDetail = "d/"

	kindBroker   = sectionState + "broker/"
	kindName     = sectionState + "name/"
	kindTopic    = sectionState + "topic/"
	kindLeader   = sectionState + "leader/"
	kindISR      = sectionState + "isr/"
	kindHead     = sectionState + "head/"
	kindConfig   = sectionState + "config/"
	kindCluster  = sectionState + "cluster/"
	kindDeleting = sectionState + "deleting/"
	kindDrain    = sectionState + "drain/"
	kindCoord    = sectionState + "coord/"
	kindQuota    = sectionState + "quota/"

	kindNode    = sectionDetail + "node/"
	kindSegment = sectionDetail + "seg/"
	kindIntent  = sectionDetail + "intent/"
	kindGC      = sectionDetail + "gc/"
	kindRole    = sectionDetail + "role/"

	kindGroup        = sectionDetail + "group/"
	kindGroupPage    = sectionDetail + "gpage/"
	kindGroupOffsets = sectionDetail + "goff/"
	kindGroupPending = sectionDetail + "gpend/"

	kindTxn = sectionDetail + "txn/"

	kindLoad     = sectionDetail + "load/"
	keyPIDBlock  = sectionDetail + "pidblock"
	keyGen       = kindCluster + "gen"
	keyVersion   = kindCluster + "version"
	keyBucket    = kindCluster + "bucket"
	keyShards    = kindCluster + "shards"
	defaultEntry = "default"
	// quotaChanges is the key beside the entities that every change of quotas moves.
	quotaChanges = "changes"
)

// ConfigKind is what a dynamic configuration is for.
type ConfigKind string

// The kinds of dynamic configuration.
const (
	ConfigBroker ConfigKind = "broker"
	ConfigGroup  ConfigKind = "group"
	ConfigClient ConfigKind = "client"
)

// keyspace makes the keys of one cluster. prefix ends in a slash.
type keyspace struct{ prefix string }

func newKeyspace(prefix string) keyspace { return keyspace{strings.TrimSuffix(prefix, "/") + "/"} }

func (k keyspace) state() string { return k.prefix + sectionState }

func (k keyspace) key(rest string) string { return k.prefix + rest }

func (k keyspace) broker(n record.NodeID) string { return k.prefix + kindBroker + itoa(int64(n)) }
func (k keyspace) drain(n record.NodeID) string  { return k.prefix + kindDrain + itoa(int64(n)) }
func (k keyspace) node(n record.NodeID) string   { return k.prefix + kindNode + itoa(int64(n)) }
func (k keyspace) name(name string) string       { return k.prefix + kindName + EscapeID(name) }
func (k keyspace) topic(id record.TopicID) string {
	return k.prefix + kindTopic + id.Hex()
}
func (k keyspace) deleting(id record.TopicID) string {
	return k.prefix + kindDeleting + id.Hex()
}
func (k keyspace) leader(p PartitionID) string { return k.partition(kindLeader, p) }
func (k keyspace) isr(p PartitionID) string    { return k.partition(kindISR, p) }
func (k keyspace) head(p PartitionID) string   { return k.partition(kindHead, p) }

func (k keyspace) partition(kind string, p PartitionID) string {
	return k.prefix + kind + p.Topic.Hex() + "/" + itoa(int64(p.Index))
}

func (k keyspace) segments(p PartitionID) string { return k.partition(kindSegment, p) + "/" }
func (k keyspace) segment(p PartitionID, base record.Offset) string {
	return k.segments(p) + fmt.Sprintf("%020d", int64(base))
}
func (k keyspace) intents(p PartitionID) string { return k.partition(kindIntent, p) + "/" }
func (k keyspace) intent(p PartitionID, attempt UUID) string {
	return k.intents(p) + attempt.String()
}
func (k keyspace) gc(attempt UUID) string      { return k.prefix + kindGC + attempt.String() }
func (k keyspace) load(n record.NodeID) string { return k.prefix + kindLoad + itoa(int64(n)) }
func (k keyspace) role(name string) string     { return k.prefix + kindRole + EscapeID(name) }
func (k keyspace) config(name string) string   { return k.prefix + kindConfig + name }
func (k keyspace) quota(e QuotaEntity) string  { return k.prefix + kindQuota + quotaName(e) }

// configName is the key of a dynamic configuration behind its section and kind. Entities are escaped with a leading tilde, so
// that none of them can be the default's.
func configName(kind ConfigKind, entity string) string {
	if entity == "" {
		return string(kind) + "/" + defaultEntry
	}
	return string(kind) + "/~" + EscapeID(entity)
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// prefixEnd is the first key behind all that begin with the prefix.
func prefixEnd(prefix string) string {
	b := []byte(prefix)
	for i := len(b) - 1; i >= 0; i-- {
		if b[i] < 0xff {
			b[i]++
			return string(b[:i+1])
		}
	}
	return "\x00"
}

// PrefixEnd is the first key behind all that begin with the prefix.
func PrefixEnd(prefix string) string { return prefixEnd(prefix) }

const hexDigits = "0123456789ABCDEF"

// EscapeID makes a key part of a name or id: percent-encoding of every byte but letters, digits, '.', '_' and '-'. It is
// injective and never contains a slash, so a part followed by a slash is never a prefix of another id's part with its slash.
func EscapeID(id string) string {
	plain := true
	for i := 0; i < len(id); i++ {
		plain = plain && unescaped(id[i])
	}
	if plain {
		return id
	}
	var b strings.Builder
	for i := 0; i < len(id); i++ {
		if c := id[i]; unescaped(c) {
			b.WriteByte(c)
		} else {
			b.WriteByte('%')
			b.WriteByte(hexDigits[c>>4])
			b.WriteByte(hexDigits[c&15])
		}
	}
	return b.String()
}

// UnescapeID is the inverse of EscapeID; it accepts nothing that EscapeID does not make.
func UnescapeID(part string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(part); i++ {
		c := part[i]
		if c != '%' {
			b.WriteByte(c)
			continue
		}
		if i+2 >= len(part) {
			return "", fmt.Errorf("%w: key part %q ends within an escape", ErrCorrupt, part)
		}
		n, err := strconv.ParseUint(part[i+1:i+3], 16, 8)
		if err != nil {
			return "", fmt.Errorf("%w: key part %q has a bad escape", ErrCorrupt, part)
		}
		b.WriteByte(byte(n))
		i += 2
	}
	if EscapeID(b.String()) != part {
		return "", fmt.Errorf("%w: key part %q is not in canonical form", ErrCorrupt, part)
	}
	return b.String(), nil
}

func unescaped(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == '-'
}

// parsePartition reads "{topicId}/{n}".
func parsePartition(rest string) (PartitionID, error) {
	hex, index, ok := strings.Cut(rest, "/")
	if !ok {
		return PartitionID{}, fmt.Errorf("%w: key %q names no partition", ErrCorrupt, rest)
	}
	id, err := record.ParseTopicIDHex(hex)
	if err != nil {
		return PartitionID{}, fmt.Errorf("%w: key %q: %w", ErrCorrupt, rest, err)
	}
	n, err := strconv.ParseInt(index, 10, 32)
	if err != nil || n < 0 {
		return PartitionID{}, fmt.Errorf("%w: key %q: bad partition number", ErrCorrupt, rest)
	}
	return PartitionID{Topic: id, Index: int32(n)}, nil
}

// cutKind splits a key of the state section after its kind.
func cutKind(rest string) (kind, part string) {
	after := strings.TrimPrefix(rest, sectionState)
	at := strings.IndexByte(after, '/')
	if at < 0 {
		return rest, ""
	}
	at += len(rest) - len(after) + 1
	return rest[:at], rest[at:]
}

func parseOffset(part string) (record.Offset, error) {
	n, err := strconv.ParseInt(part, 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%w: key part %q is no offset", ErrCorrupt, part)
	}
	return record.Offset(n), nil
}
