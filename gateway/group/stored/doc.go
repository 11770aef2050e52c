// SPDX-License-Identifier: Apache-2.0

// Package stored has what the stored forms of groups share: varints, strings with their length, and compression. What a form
// means, and which format number it has, is its package's.
package stored
