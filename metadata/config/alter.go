// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"slices"
	"strings"
)

// OpKind is what IncrementalAlterConfigs asks for, numbered as there.
type OpKind int8

const (
	OpSet      OpKind = 0
	OpDelete   OpKind = 1
	OpAppend   OpKind = 2
	OpSubtract OpKind = 3
)

// Op changes one config.
type Op struct {
	Name  string
	Kind  OpKind
	Value *string // nil for null; OpDelete does not look at it
}

// ApplyIncremental returns current with the operations applied; current stays as it is. Either all are applied or none (C2).
func ApplyIncremental(s Scope, current map[string]string, ops []Op) (map[string]string, error) {
	next := clone(current)
	seen := make(map[string]bool, len(ops))
	for _, op := range ops {
		if seen[op.Name] {
			return nil, fmt.Errorf("%w: %s is named twice", ErrBadOperation, op.Name)
		}
		seen[op.Name] = true
		if err := applyOne(s, next, op); err != nil {
			return nil, err
		}
	}
	return next, nil
}

func applyOne(s Scope, next map[string]string, op Op) error {
	if _, known := Lookup(s, op.Name); !known && op.Kind == OpDelete {
		delete(next, op.Name) // an older release may have known it; as in Kafka, there is nothing to complain about if not
		return nil
	}
	d, err := alterable(s, op.Name)
	if err != nil {
		return err
	}
	if op.Kind == OpDelete {
		delete(next, op.Name)
		return nil
	}
	if op.Value == nil {
		return fmt.Errorf("%w: %s: null is no value; delete the config to go back to its default", ErrBadOperation, op.Name)
	}
	value := *op.Value
	switch op.Kind {
	case OpSet:
	case OpAppend, OpSubtract:
		if d.Type != List {
			return fmt.Errorf("%w: %s is of type %s: only lists can be appended to or subtracted from", ErrInvalid, d.Name, d.Type)
		}
		base, ok := next[op.Name]
		if !ok {
			base = d.Default
		}
		value = editList(base, value, op.Kind)
	default:
		return fmt.Errorf("%w: %s: operation %d is none of 0 (set), 1 (delete), 2 (append), 3 (subtract)", ErrBadOperation, op.Name, op.Kind)
	}
	if err := d.Validate(value); err != nil {
		return err
	}
	if len(value) > maxValueBytes {
		return fmt.Errorf("%w: %s: value of %d bytes: must be at most %d", ErrInvalid, d.Name, len(value), maxValueBytes)
	}
	next[op.Name] = value
	return nil
}

// alterable finds a config that may be changed in the scope.
func alterable(s Scope, name string) (*Def, error) {
	d, err := find(s, name)
	switch {
	case err != nil:
		return nil, err
	case d.Scope != BrokerScope:
		return d, nil
	case d.Update == ReadOnly:
		return nil, fmt.Errorf("%w: %s is read when the broker starts", ErrReadOnly, name)
	case d.Update == PerBroker && s == BrokerDefaultScope:
		return nil, fmt.Errorf("%w: %s can be set for one broker only, not for all", ErrReadOnly, name)
	}
	return d, nil
}

func editList(base, value string, kind OpKind) string {
	items := splitList(base)
	for _, v := range splitList(value) {
		at := slices.Index(items, v)
		switch {
		case kind == OpAppend && at < 0:
			items = append(items, v)
		case kind == OpSubtract && at >= 0:
			items = slices.Delete(items, at, at+1)
		}
	}
	return strings.Join(items, ",")
}

// Replace checks a whole new set of overrides, as AlterConfigs and CreateTopics send them. A null value is ErrInvalid.
func Replace(s Scope, configs map[string]*string) (map[string]string, error) {
	next := make(map[string]string, len(configs))
	names := make([]string, 0, len(configs))
	for name := range configs {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		value := configs[name]
		if value == nil {
			return nil, fmt.Errorf("%w: %s: null is no value", ErrInvalid, name)
		}
		if err := applyOne(s, next, Op{Name: name, Kind: OpSet, Value: value}); err != nil {
			return nil, err
		}
	}
	return next, nil
}
