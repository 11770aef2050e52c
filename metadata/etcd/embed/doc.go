// SPDX-License-Identifier: Apache-2.0

// Package embed runs one etcd member inside this process: the metadata store of `varve dev`, and a real etcd for tests. It
// listens for clients on loopback, on a port that the system chooses, unless Options.Listen says otherwise, and for peers where it is one of several
// members: of `varve serve --etcd embed`.
//
// # A member without its directory
//
// Whoever goes on under its old id after its directory was lost has forgotten what it voted and stored: two others could then lose
// what was committed. So a member of several that finds no write-ahead log starts nothing before it knows why there is none. It binds its peer
// URL, draws a member id, answers there "empty, and would be this id" (lost.go), and asks the others' peer URLs for their `/members`:
//
//   - Nobody has a list: it waits until a majority, itself included, says "empty". Those make a new cluster, unless Options.Anew objects. A
//     member that merely starts ahead of the others after a power failure thus finds out that its directory was lost.
//   - All lists have it as one that has not started yet: the cluster is just being made, and it takes its place in it.
//   - Otherwise it was lost. It waits until every list that is answered has the id that it drew, and joins as that.
//
// Of the running members the leader looks at the other peer URLs every other second (replace.go). Where "empty" is answered it removes the
// member that the cluster has at that URL, if it has another id, and adds one with the id that was drawn. It is etcd's own change of members,
// which needs a majority and etcd's consent. An id is drawn anew at each start and never used again, so that a start that is cut short, or a
// second loss, is nothing special. No running member is removed: it holds the URL, and answers otherwise.
//
// Names are node ids, in --etcd-peers and at every start; ids of members are etcd's business.
//
// Invariants:
//
//   - M1: a directory's member id is used by no other directory, but while a cluster is made for the first time: a list from then cannot be told from one
//     of a member that has been down ever since. Who loses its directory after a day in which that one was down, and then meets it alone, takes its old
//     place.
//   - M2: a member whose directory was made for another set of peers ends before it serves (compare.go). Its raft ran until then.
package embed
