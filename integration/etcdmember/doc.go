// SPDX-License-Identifier: Apache-2.0

// Command etcdmember runs one etcd member as a process of its own, for tests: an etcd that can be
// killed, restarted and restored without touching the broker. It is etcd's own server package with a plain configuration and
// nothing of this project.
//
// It is not for production: one member, no TLS, loopback.
package main
