// SPDX-License-Identifier: Apache-2.0

// Package embed runs one etcd member inside this process: the metadata store of `varve dev`, and a real etcd for tests. It
// listens on loopback only, on ports that the system chooses, unless it is one of several members: of `varve serve --etcd embed`.
package embed
