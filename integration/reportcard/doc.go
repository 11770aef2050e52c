// SPDX-License-Identifier: Apache-2.0

// Command reportcard runs foreign Kafka clients against Apache Kafka and against Varve and writes a page that says what passes on each.
//
// A client is a folder with two programs: install.sh NAME VERSION puts the client into $CARD_DIR, run.sh NAME VERSION runs its cases
// against $CARD_BOOTSTRAP and prints a line per case, its fields parted by tabs:
//
//	version TEXT          what the client says of its own version
//	pass    CASE
//	fail    CASE REASON
//	none    CASE REASON   the client's API has nothing for the case
//
// $CARD_RUN is a word of this run that the client puts before the names of its topics and groups, $CARD_REPLICAS the number of nodes,
// $CARD_CASES the cases to run, all if it is empty.
//
// What the clients print is kept in a folder, a file per client and system; the page is made from whatever lies there, so that a run
// of one client renews its column only.
//
// It does not start the two systems: scripts/report-card.sh does. It judges nothing by time.
package main
