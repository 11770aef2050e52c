// SPDX-License-Identifier: Apache-2.0

// Package testenv starts the servers that tests need (S3 servers for now) as child processes on loopback, on free ports,
// waits until they answer and stops them by their process id. Only tests import it.
//
// The binaries come from scripts/tools.sh. When one is absent the test skips and says so, unless VARVE_REQUIRE_TOOLS is
// set: then it fails, so that CI cannot pass by skipping.
package testenv
