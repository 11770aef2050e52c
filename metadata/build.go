// SPDX-License-Identifier: Apache-2.0

package metadata

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/varve/varve/metadata/config"
	"github.com/varve/varve/record"
)

// edit makes the next image out of one by events. What the old image holds stays as it is: parts are copied before the first
// change (they carry the edit's mark afterwards). An edit is used once, by one goroutine.
type edit struct {
	s       *Store
	img     *Image
	mark    *editMark
	brokers bool // img.brokers is this edit's own
	configs bool
	drains  bool
	other   bool
	coords  bool
	quotas  bool
	// topics: a topic or its name is another, or all were read anew and nobody knows.
	topics bool
	// brokerConfig: this node's broker configuration changed, so all topics are resolved anew.
	brokerConfig bool
	touched      map[record.TopicID]struct{} // topics to be resolved
}

func (s *Store) newEdit(from *Image) *edit {
	img := *from
	return &edit{s: s, img: &img, mark: new(editMark), topics: !from.Loaded(), touched: map[record.TopicID]struct{}{}}
}

// apply takes in one change of a key.
func (e *edit) apply(ev *Event) error {
	rest, ok := strings.CutPrefix(ev.Key, e.s.keys.prefix)
	if !ok {
		return fmt.Errorf("%w: key %q outside of the cluster", ErrCorrupt, ev.Key)
	}
	switch {
	case ev.Deleted:
		e.img.keys--
	case ev.Version == 1:
		e.img.keys++
	}
	if err := e.applyKind(rest, ev); err != nil {
		return fmt.Errorf("key %s: %w", ev.Key, err)
	}
	return nil
}

func (e *edit) applyKind(rest string, ev *Event) error {
	cut := func(kind string) bool {
		after, ok := strings.CutPrefix(rest, kind)
		if ok {
			rest = after
		}
		return ok
	}
	switch {
	case cut(kindLeader):
		return e.partition(rest, ev, func(p *PartitionState, kv *KeyValue) (err error) {
			p.Leader, err = decodeLeader(kv)
			return err
		}, func(p *PartitionState) { p.Leader = noPartition.Leader })
	case cut(kindISR):
		return e.partition(rest, ev, func(p *PartitionState, kv *KeyValue) (err error) {
			p.ISR, err = decodeISR(kv)
			return err
		}, func(p *PartitionState) { p.ISR = ISRState{} })
	case cut(kindHead):
		return e.partition(rest, ev, func(p *PartitionState, kv *KeyValue) (err error) {
			p.Head, err = decodeHead(kv)
			return err
		}, func(p *PartitionState) { p.Head = Head{} })
	case cut(kindTopic):
		return e.topic(rest, ev)
	case cut(kindName):
		return e.name(rest, ev)
	case cut(kindBroker):
		return e.broker(rest, ev)
	case cut(kindConfig):
		return e.config(rest, ev)
	case cut(kindDrain):
		return e.drain(rest, ev)
	case cut(kindQuota):
		return e.quota(rest, ev)
	}
	e.others(rest, ev)
	if cut(kindCoord) {
		return e.coord(rest, ev)
	}
	if rest == keyShards {
		return e.shards(ev)
	}
	if rest == keyVersion && !ev.Deleted {
		v, err := e.s.checkVersion(&ev.KeyValue)
		e.img.Version = v
		return err
	}
	if rest == keyGen && !ev.Deleted {
		var g genJSON
		if err := decodeJSON("cluster generation", ev.Value, &g); err != nil {
			return err
		}
		if g.ClusterID != e.s.clusterID || g.Gen != e.s.gen {
			return fmt.Errorf("cluster %s generation %d, was %s generation %d: %w", g.ClusterID, g.Gen, e.s.clusterID, e.s.gen, ErrGeneration)
		}
		e.img.ClusterID, e.img.Gen = g.ClusterID, g.Gen
	}
	return nil
}

func (e *edit) partition(rest string, ev *Event, set func(*PartitionState, *KeyValue) error, clear func(*PartitionState)) error {
	id, err := parsePartition(rest)
	if err != nil {
		return err
	}
	entry := e.entry(id.Topic)
	state := noPartition
	if old := entry.at(id.Index); old != nil {
		state = *old
	}
	if ev.Deleted {
		clear(&state)
	} else if err := set(&state, &ev.KeyValue); err != nil {
		return err
	}
	c := int(id.Index) / chunkSize
	for len(entry.chunks) <= c {
		entry.chunks = append(entry.chunks, nil)
	}
	own := entry.chunks[c]
	if own == nil || own.mark != e.mark {
		fresh := &chunk{mark: e.mark}
		if own != nil {
			fresh.states = own.states
		}
		own, entry.chunks[c] = fresh, fresh
	}
	if state.Leader.Rev == 0 && state.ISR.Rev == 0 && state.Head.Rev == 0 {
		own.states[int(id.Index)%chunkSize] = nil
		e.prune(id.Topic)
		return nil
	}
	own.states[int(id.Index)%chunkSize] = &state
	return nil
}

// entry is the topic's entry, this edit's own.
func (e *edit) entry(id record.TopicID) *topicEntry {
	entry, ok := e.img.topics.get(id)
	if ok && entry.mark == e.mark {
		return entry
	}
	own := &topicEntry{mark: e.mark}
	if ok {
		own.topic, own.chunks = entry.topic, slices.Clone(entry.chunks)
	}
	e.img.topics.put(id, own, e.mark)
	return own
}

// prune forgets a topic of which no key is left.
func (e *edit) prune(id record.TopicID) {
	entry, ok := e.img.topics.get(id)
	if !ok || entry.topic != nil {
		return
	}
	for _, c := range entry.chunks {
		if c != nil && c.states != ([chunkSize]*PartitionState{}) {
			return
		}
	}
	e.img.topics.remove(id, e.mark)
}

func (e *edit) topic(rest string, ev *Event) error {
	id, err := record.ParseTopicIDHex(rest)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	e.topics = true
	entry := e.entry(id)
	if ev.Deleted {
		entry.topic = nil
		delete(e.touched, id)
		e.prune(id)
		return nil
	}
	entry.topic, err = decodeTopic(id, &ev.KeyValue)
	e.touched[id] = struct{}{}
	return err
}

func (e *edit) name(rest string, ev *Event) error {
	name, err := UnescapeID(rest)
	if err != nil {
		return err
	}
	e.topics = true
	if ev.Deleted {
		e.img.names.remove(name, e.mark)
		return nil
	}
	id, err := decodeName(ev.Value)
	if err != nil {
		return err
	}
	e.img.names.put(name, nameEntry{id, ev.ModRevision}, e.mark)
	return nil
}

func (e *edit) broker(rest string, ev *Event) error {
	node, err := parseNode(rest)
	if err != nil {
		return err
	}
	if !e.brokers {
		e.img.brokers, e.brokers = slices.Clone(e.img.brokers), true
	}
	at, there := slices.BinarySearchFunc(e.img.brokers, node, byNode)
	if ev.Deleted {
		if there {
			e.img.brokers = slices.Delete(e.img.brokers, at, at+1)
		}
		return nil
	}
	b, err := decodeBroker(node, &ev.KeyValue)
	if err != nil {
		return err
	}
	if there {
		e.img.brokers[at] = b
	} else {
		e.img.brokers = slices.Insert(e.img.brokers, at, b)
	}
	return nil
}

func byNode(b *Broker, n record.NodeID) int { return int(b.Node) - int(n) }

func (e *edit) config(rest string, ev *Event) error {
	if !e.configs {
		e.img.configs, e.configs = maps.Clone(e.img.configs), true
		if e.img.configs == nil {
			e.img.configs = map[string]configEntry{}
		}
	}
	if strings.HasPrefix(rest, string(ConfigBroker)+"/") {
		e.brokerConfig = true
	}
	if ev.Deleted {
		delete(e.img.configs, rest)
		return nil
	}
	values, err := decodeConfig(ev.Value)
	e.img.configs[rest] = configEntry{values, ev.ModRevision}
	return err
}

// others keeps the revisions of keys that the image needs nothing else of, so that the check finds a lost event there too.
func (e *edit) others(rest string, ev *Event) {
	if !e.other {
		e.img.other, e.other = maps.Clone(e.img.other), true
		if e.img.other == nil {
			e.img.other = map[string]Revision{}
		}
	}
	if ev.Deleted {
		delete(e.img.other, rest)
	} else {
		e.img.other[rest] = ev.ModRevision
	}
}

// done resolves the configuration of what changed and gives the image as of rev.
func (e *edit) done(rev Revision) *Image {
	e.img.Revision = rev
	if e.topics {
		e.img.TopicsRevision = rev
	}
	if e.brokerConfig || e.img.NodeConfig == nil {
		e.resolveBroker()
		for t := range e.img.Topics() {
			e.touched[t.ID] = struct{}{}
		}
	}
	for id := range e.touched {
		if entry, ok := e.img.topics.get(id); ok && entry.topic != nil {
			e.resolveTopic(e.entry(id))
		}
	}
	return e.img
}

// resolveBroker resolves this node's configuration. A stored value that no longer is valid (an older release took it) must not stop
// a node: it is reported and left out.
func (e *edit) resolveBroker() {
	b, bad, err := config.ResolveStoredBroker(e.s.opts.StaticConfig,
		e.img.Config(ConfigBroker, ""), e.img.Config(ConfigBroker, strconv.Itoa(int(e.s.opts.NodeID))))
	for _, problem := range bad {
		e.s.log.Warn("metadata: stored broker config ignored", "error", problem)
	}
	if err != nil {
		// Open checked the static part.
		e.s.log.Error("metadata: broker configuration", "error", err)
		b = config.Default()
	}
	e.img.NodeConfig = b
	e.img.topicDefaults, _ = config.ResolveStoredTopic(nil, b)
}

// resolveTopic replaces the topic by one whose configuration is resolved, once per change. Topics without overrides share one.
func (e *edit) resolveTopic(entry *topicEntry) {
	t := *entry.topic
	if len(t.Overrides) == 0 {
		t.Config = e.img.topicDefaults
	} else {
		resolved, bad := config.ResolveStoredTopic(t.Overrides, e.img.NodeConfig)
		for _, problem := range bad {
			e.s.log.Warn("metadata: stored topic config ignored", "topic", t.Name, "error", problem)
		}
		t.Config = resolved
	}
	entry.topic = &t
}

func parseNode(rest string) (record.NodeID, error) {
	n, err := strconv.ParseInt(rest, 10, 32)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%w: key part %q is no node id", ErrCorrupt, rest)
	}
	return record.NodeID(n), nil
}
