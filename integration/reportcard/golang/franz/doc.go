// SPDX-License-Identifier: Apache-2.0

// Command franz runs the cases with franz-go and its kadm.
package main
