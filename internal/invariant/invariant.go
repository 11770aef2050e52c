// SPDX-License-Identifier: Apache-2.0

package invariant

import "fmt"

// Check panics with the statement's id and text unless cond holds. Use it where the check is cheap next to what follows.
func Check(cond bool, statement string) {
	if !cond {
		panic("invariant violated: " + statement)
	}
}

// Checkf is Check with the values that broke it. The arguments are evaluated always, so keep it off hot paths.
func Checkf(cond bool, format string, args ...any) {
	if !cond {
		panic("invariant violated: " + fmt.Sprintf(format, args...))
	}
}
