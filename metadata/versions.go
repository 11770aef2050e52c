// SPDX-License-Identifier: Apache-2.0

//go:build !varve_next_version

package metadata

// CurrentVersions is the range of cluster versions that this binary can run. It writes as the cluster's version says.
var CurrentVersions = VersionRange{Min: 1, Max: 1}
