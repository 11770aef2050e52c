// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// flatten takes an answer apart, one line per field (D1).
func (s *side) flatten(resp kmsg.Response) []field {
	var out []field
	s.walk(&out, "", reflect.ValueOf(resp).Elem())
	return out
}

// unnamed are the fields that say nothing about behaviour.
var unnamed = map[string]bool{"Version": true, "ThrottleMillis": true, "UnknownTags": true, "Documentation": true}

// wording are texts: compared by whether they are there.
var wording = map[string]bool{"ErrorMessage": true}

func (s *side) walk(out *[]field, at string, v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			name := v.Type().Field(i).Name
			if unnamed[name] {
				continue
			}
			below := strings.TrimPrefix(at+"."+name, ".")
			if value, ok := s.standIn(name, v.Field(i)); ok {
				*out = append(*out, field{below, value})
				continue
			}
			s.walk(out, below, v.Field(i))
		}
	case reflect.Slice:
		s.walkSlice(out, at, v)
	case reflect.Pointer:
		if v.IsNil() {
			*out = append(*out, field{at, "null"})
			return
		}
		s.walk(out, at, v.Elem())
	default:
		*out = append(*out, field{at, fmt.Sprint(v.Interface())})
	}
}

func (s *side) walkSlice(out *[]field, at string, v reflect.Value) {
	if v.IsNil() {
		*out = append(*out, field{at, "null"})
		return
	}
	if v.Type().Elem().Kind() == reflect.Uint8 {
		*out = append(*out, field{at, describeBatches(v.Bytes())})
		return
	}
	if names, ok := v.Interface().([]string); ok {
		names = slices.Clone(names)
		slices.Sort(names)
		*out = append(*out, field{at, fmt.Sprint(names)})
		return
	}
	if numbers, ok := v.Interface().([]int32); ok && strings.HasSuffix(at, ".Partitions") {
		// A set. Kafka lists what a member still gives up behind the rest, or sorted, as its map has it.
		numbers = slices.Clone(numbers)
		slices.Sort(numbers)
		*out = append(*out, field{at, fmt.Sprint(numbers)})
		return
	}
	if v.Type().Elem().Kind() != reflect.Struct {
		*out = append(*out, field{at, fmt.Sprint(v.Interface())})
		return
	}
	var keys []string
	for i := range v.Len() {
		keys = append(keys, s.key(v.Index(i), i))
		s.walk(out, at+"["+keys[i]+"]", v.Index(i))
	}
	slices.Sort(keys) // the order of an answer's entries says nothing
	*out = append(*out, field{at, "{" + strings.Join(keys, " ") + "}"})
}

// key names an element by what identifies it, else by its place.
func (s *side) key(v reflect.Value, i int) string {
	var key []string
	if id := v.FieldByName("TopicID"); id.IsValid() && id.IsZero() && !named(v) {
		return "no id"
	}
	for _, name := range []string{"Topic", "TopicID", "Name", "ConfigName", "ResourceName", "ApiKey", "Partition", "NodeID", "Group", "MemberID", "Type", "Key", "User"} {
		f := v.FieldByName(name)
		if !f.IsValid() || f.IsZero() && f.Kind() != reflect.Int32 && f.Kind() != reflect.Int16 || name == "TopicID" && named(v) {
			continue
		}
		if f.Kind() == reflect.Pointer {
			f = f.Elem()
		}
		if value, ok := s.standIn(name, f); ok {
			key = append(key, value)
		} else {
			key = append(key, fmt.Sprint(f.Interface()))
		}
	}
	if f := v.FieldByName("Entity"); f.IsValid() { // of quotas: a list of types and names
		var parts []string
		for j := range f.Len() {
			parts = append(parts, s.key(f.Index(j), j))
		}
		slices.Sort(parts)
		key = append(key, strings.Join(parts, "+"))
	}
	if len(key) == 0 {
		return fmt.Sprint(i)
	}
	return strings.Join(key, "/")
}

// named tells whether a topic has a name: then the id says nothing more about which one it is.
func named(v reflect.Value) bool {
	f := v.FieldByName("Topic")
	return f.IsValid() && !f.IsZero()
}

// standIn replaces ids, ports and clock values by what they stand for.
func (s *side) standIn(name string, v reflect.Value) (string, bool) {
	switch name {
	case "TopicID":
		id := v.Interface().([16]byte)
		if known, ok := s.ids[id]; ok {
			return "id:" + known, true
		}
		return map[bool]string{true: "no id", false: "an id"}[id == [16]byte{}], true
	case "ErrorMessage":
		return map[bool]string{true: "null", false: "text"}[v.IsNil() || v.Elem().Len() == 0], wording[name]
	case "LogAppendTime", "Timestamp", "LastTimestamp": // no script looks up a time of its own that late
		if v.Int() >= startOfRun {
			return "now", true
		}
	case "MemberID", "LeaderID":
		if v.Kind() == reflect.Pointer {
			if v.IsNil() {
				return "null", true
			}
			v = v.Elem()
		}
		if v.Kind() == reflect.String && v.Len() >= 22 { // an id that the broker made up
			return "given", true
		}
	case "SessionID", "ProducerID":
		if v.Int() > 0 {
			return "given", true
		}
	case "LeaderEpoch", "Epoch":
		if s.now > s.old { // there was a restart
			name, ok := map[int64]string{int64(s.old): "old", int64(s.now): "present"}[v.Int()]
			return name, ok
		}
	case "Port":
		return "port", true
	}
	return "", false
}

// describeBatches shows record batches: what differs by right (the leader's epoch, append time) is left out of the sum of bytes.
func describeBatches(b []byte) string {
	var out []string
	for len(b) >= 61 {
		n := 12 + int(binary.BigEndian.Uint32(b[8:]))
		if n > len(b) {
			out = append(out, fmt.Sprintf("part of a batch (%d of %d bytes)", len(b), n))
			break
		}
		batch := slices.Clone(b[:n])
		binary.BigEndian.PutUint32(batch[12:], 0)
		attributes := binary.BigEndian.Uint16(batch[21:])
		if attributes&8 != 0 {
			clear(batch[17:21]) // the CRC covers the append time
			clear(batch[35:43])
		}
		out = append(out, fmt.Sprintf("%d+%d attributes=%d bytes=%d sum=%08x", binary.BigEndian.Uint64(batch), binary.BigEndian.Uint32(batch[23:]),
			attributes, n, crc32.ChecksumIEEE(batch)))
		b = b[n:]
	}
	return "[" + strings.Join(out, ", ") + "]"
}

type tally struct{ cases, fields, intended int }

func (t *tally) add(o tally) {
	t.cases, t.fields, t.intended = t.cases+o.cases, t.fields+o.fields, t.intended+o.intended
}

// compare fails the test for every difference that is not intended (D2).
func compare(t *testing.T, theirs, ours []observation, used []int) (n tally) {
	t.Helper()
	if len(theirs) != len(ours) {
		t.Fatalf("%d answers of Kafka, %d of Varve", len(theirs), len(ours))
	}
	for i := range theirs {
		if theirs[i].name != ours[i].name {
			t.Fatalf("answer %d is %q of Kafka, %q of Varve", i, theirs[i].name, ours[i].name)
		}
		n.cases++
		left, right := asMap(theirs[i].fields), asMap(ours[i].fields)
		for _, p := range union(left, right) {
			n.fields++
			if left[p] == right[p] {
				continue
			}
			if row := intends(theirs[i].name, p, left[p], right[p]); row >= 0 {
				used[row]++
				n.intended++
				continue
			}
			t.Errorf("%s: %s: Kafka %s, Varve %s", theirs[i].name, p, shown(left[p]), shown(right[p]))
		}
	}
	return n
}

func asMap(fields []field) map[string]string {
	m := make(map[string]string, len(fields))
	for _, f := range fields {
		m[f.path] = f.value
	}
	return m
}

func union(a, b map[string]string) []string {
	var out []string
	for p := range a {
		out = append(out, p)
	}
	for p := range b {
		if _, ok := a[p]; !ok {
			out = append(out, p)
		}
	}
	slices.Sort(out)
	return out
}

func shown(v string) string {
	if v == "" {
		return "absent"
	}
	return v
}

// difference is one intended difference. Patterns are those of path.Match with every slash taken as a letter; an empty value
// matches any.
type difference struct {
	cases, field string
	kafka, varve string
	why          string
}

func intends(name, at, theirs, ours string) int {
	for i, d := range intended {
		if like(d.cases, name) && like(d.field, at) && (d.kafka == "" || like(d.kafka, shown(theirs))) && (d.varve == "" || like(d.varve, shown(ours))) {
			return i
		}
	}
	return -1
}

// like matches with `*` only: names are full of brackets and slashes.
func like(pattern, s string) bool {
	flat := strings.NewReplacer("/", "|", "[", "(", "]", ")", "?", "!", "\\", "|")
	ok, err := path.Match(flat.Replace(pattern), flat.Replace(s))
	return err == nil && ok
}
