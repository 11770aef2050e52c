// SPDX-License-Identifier: Apache-2.0

//go:build varve_next_version

package metadata

// CurrentVersions of a build that stands for the next release: tests of rolling upgrades start it beside this one.
var CurrentVersions = VersionRange{Min: 1, Max: 2}
