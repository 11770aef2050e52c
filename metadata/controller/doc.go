// SPDX-License-Identifier: Apache-2.0

// Package controller decides where replicas are and who should lead: placement of new partitions, automatic replication factors, the
// emptying of nodes that drain, balance by measured load, and the steps of reassignments that are under way.
//
// It only edits assignments: the first replica of one is the preferred leader, and leaders hand over to it by themselves once it is in
// sync. It makes nobody a leader (but uncleanly, for topics that ask for that, when nobody is left who could lead), touches no in-sync set
// and sends no requests; nothing stops while no node holds the role, and two holders at once are harmless, since every change is a
// compare-and-swap.
//
// Place and Planner are pure: what they know comes in, what they decide goes out. Controller is the loop around them: it runs on every
// node and acts on the one that is elected.
//
// Invariants:
//
//   - C1: a replica that becomes the preferred leader for the sake of balance is in sync and registered.
//   - C2: a plan changes a partition once, and each change is one thing: another order, one replica more, those gone that
//     are wanted no more, or the end of a move.
//   - C3: a partition keeps at least as many in-sync replicas as its replication factor, or as it had, and as min.insync.replicas
//     where it has as many; only an automatic replication factor falls, and only for a node that drains.
//   - C4: a cluster on which nothing changes comes to rest: plans become empty.
//   - C5: what is placed or moved by itself shares a rack with another replica only when there are fewer racks than replicas, or the
//     replica before it did.
package controller
