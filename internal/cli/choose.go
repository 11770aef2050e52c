// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"slices"
	"strings"
)

// choices are the values of a flag as Kafka spells them, however the user does. What is none of them is wrong usage: Kafka answers
// a name that it does not know with an empty list.
func choices(flag string, given, valid []string) ([]string, error) {
	var out []string
	for _, g := range given {
		i := slices.IndexFunc(valid, func(v string) bool { return strings.EqualFold(v, strings.TrimSpace(g)) })
		if i < 0 {
			return nil, usagef("%s %q is none of %s", flag, g, strings.Join(valid, ", "))
		}
		out = append(out, valid[i])
	}
	return out, nil
}

// nearest is the name that was probably meant, "" when none is near.
func nearest(name string, names []string) string {
	best, least := "", max(2, len(name)/3)+1
	for _, n := range names {
		if d := distance(name, n); d < least {
			best, least = n, d
		}
	}
	return best
}

// distance is how many letters have to be put in, taken out or changed to make one of the other (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
