// SPDX-License-Identifier: Apache-2.0

package metadata

import (
	"slices"
	"strings"
)

// ConfigEntities are the entities of a kind that have a dynamic configuration of their own, sorted.
func (i *Image) ConfigEntities(kind ConfigKind) []string {
	var all []string
	for key, entry := range i.configs {
		if escaped, ok := strings.CutPrefix(key, string(kind)+"/~"); ok && len(entry.values) > 0 {
			if name, err := UnescapeID(escaped); err == nil {
				all = append(all, name)
			}
		}
	}
	slices.Sort(all)
	return all
}
