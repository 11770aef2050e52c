// SPDX-License-Identifier: Apache-2.0

package consumer

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"maps"
	"regexp"
	"regexp/syntax"
	"slices"
	"time"

	"github.com/varve/varve/record"
)

// regex is a subscription by pattern: the topics whose whole name it matches.
type regex struct {
	pattern *regexp.Regexp
	topics  []string // in order
	version int64    // of the topics that it was held against
	at      time.Time
}

// compile takes an RE2 pattern that must match the whole name.
func compile(text string) (*regexp.Regexp, error) {
	if len(text) > maxRegex {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrInvalidRegex, len(text), maxRegex)
	}
	parsed, err := syntax.Parse(text, syntax.Perl) // before the anchors, which would mend a lone parenthesis
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalidRegex, err)
	}
	if n := instructions(parsed); n > maxInstructions {
		return nil, fmt.Errorf("%w: it repeats too much: %d instructions, at most %d", ErrInvalidRegex, n, maxInstructions)
	}
	re, err := regexp.Compile(`\A(?:` + text + `)\z`)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalidRegex, err)
	}
	return re, nil
}

// instructions is about how many a parsed pattern is compiled to. Nothing is expanded for it: counted repetitions that follow one another
// make of a short text a program of hundreds of megabytes.
func instructions(re *syntax.Regexp) int64 {
	n := int64(1)
	if re.Op == syntax.OpLiteral {
		n = int64(len(re.Rune))
	}
	for _, sub := range re.Sub {
		n += instructions(sub)
	}
	if re.Op == syntax.OpRepeat { // the parser lets no more than a thousand of them be nested in one another
		n *= int64(max(1, re.Min, re.Max))
	}
	return n
}

// Resolve makes sure that it is known what members read, as after a failover before they are heard of.
func (g *Group) Resolve(now time.Time, env *Env) { g.resolve(now, env) }

// resolve holds the patterns against the topics: new ones at once, the others when topics have changed and the last look is some
// time ago, or when they have not been looked at for long.
func (g *Group) resolve(now time.Time, env *Env) {
	due := false
	for _, m := range g.members {
		if m.regex == "" {
			continue
		}
		r := g.regexes[m.regex]
		if r == nil {
			re, err := compile(m.regex)
			if err != nil {
				continue // it was checked when it came; a binary that cannot read it matches nothing
			}
			r = &regex{pattern: re}
			g.regexes[m.regex] = r
		}
		age := now.Sub(r.at)
		due = due || r.at.IsZero() || r.version != env.Topics.Version() && age >= regexPause || env.Config.RegexRefresh > 0 && age >= env.Config.RegexRefresh
	}
	if !due {
		return
	}
	for _, r := range g.regexes {
		r.topics, r.version, r.at = nil, env.Topics.Version(), now
	}
	for name := range env.Topics.All() {
		for _, r := range g.regexes {
			if r.pattern.MatchString(name) {
				r.topics = append(r.topics, name)
			}
		}
	}
	for _, r := range g.regexes {
		slices.Sort(r.topics)
	}
	g.seen = -1
}

// forgetRegexes drops the patterns that nobody has.
func (g *Group) forgetRegexes() {
	maps.DeleteFunc(g.regexes, func(text string, _ *regex) bool {
		return !slices.ContainsFunc(g.members, func(m *member) bool { return m.regex == text })
	})
}

// reads tells whether the member reads a topic of that name.
func (g *Group) reads(m *member, name string) bool {
	if _, ok := slices.BinarySearch(m.topics, name); ok {
		return true
	}
	if r := g.regexes[m.regex]; m.regex != "" && r != nil {
		_, ok := slices.BinarySearch(r.topics, name)
		return ok
	}
	return false
}

// readsID tells whether the member reads the topic, which exists.
func (g *Group) readsID(m *member, id record.TopicID, t Topics) bool {
	name, ok := t.Name(id)
	return ok && g.reads(m, name)
}

// Reads tells whether any member reads a topic of that name, as of the last Resolve or heartbeat.
func (g *Group) Reads(name string) bool {
	return slices.ContainsFunc(g.members, func(m *member) bool { return g.reads(m, name) })
}

// names are all names that members read, in order.
func (g *Group) names() []string {
	set := map[string]struct{}{}
	for _, m := range g.members {
		for _, name := range m.topics {
			set[name] = struct{}{}
		}
	}
	for _, r := range g.regexes {
		for _, name := range r.topics {
			set[name] = struct{}{}
		}
	}
	return slices.Sorted(maps.Keys(set))
}

// look compares the topics that are read with what they were, and gives the group another epoch when they changed.
func (g *Group) look(env *Env) {
	if g.seen == env.Topics.Version() {
		return
	}
	g.seen = env.Topics.Version()
	if sum := g.sum(env.Topics); sum != g.hash {
		g.hash = sum
		g.bump()
	}
}

// sum stands for the topics that are read: which there are, and how many partitions they have.
func (g *Group) sum(topics Topics) uint64 {
	h := fnv.New64a()
	for _, name := range g.names() {
		if t, ok := topics.Topic(name); ok {
			_, _ = h.Write(t.ID[:])
			_, _ = h.Write(binary.BigEndian.AppendUint32(nil, uint32(t.Partitions)))
		}
	}
	return h.Sum64()
}

// retarget computes a new target assignment if the group has come to another epoch, but not more often than is configured.
func (g *Group) retarget(now time.Time, env *Env) {
	if g.epoch == g.targetEpoch || g.assignedAt.Add(env.Config.AssignmentInterval).After(now) && !g.assignedAt.After(now) {
		return
	}
	p := g.plan(env.Topics)
	for i, target := range p.assign(g.assignor(env.Config)) {
		g.members[i].target = target
	}
	g.targetEpoch, g.assignedAt, g.dirty = g.epoch, now, true
	g.hash, g.seen = g.sum(env.Topics), env.Topics.Version() // who has left may have read more
}

// plan is what the assignor sees. Topics come in the order of their names, readers in that of the members.
func (g *Group) plan(topics Topics) *plan {
	p := &plan{}
	at := map[string]int{}
	for _, name := range g.names() {
		if t, ok := topics.Topic(name); ok {
			at[name] = len(p.topics)
			p.topics = append(p.topics, t)
		}
	}
	for _, m := range g.members {
		r := reader{id: m.id, static: m.static(), has: m.target}
		if m.static() {
			r.instance = *m.instance
		}
		add := func(names []string) {
			for _, name := range names {
				if i, ok := at[name]; ok {
					r.topics = append(r.topics, i)
				}
			}
		}
		add(m.topics)
		if x := g.regexes[m.regex]; m.regex != "" && x != nil {
			add(x.topics)
		}
		slices.Sort(r.topics)
		r.topics = slices.Compact(r.topics)
		p.readers = append(p.readers, r)
	}
	return p
}
