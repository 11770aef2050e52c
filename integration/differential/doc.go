// SPDX-License-Identifier: Apache-2.0

// Package differential sends the same raw requests to Apache Kafka 4.4 and to a node of the product and compares the answers
// field by field: codes, offsets, timestamps, epochs, session behaviour, and the bytes of the batches that come back.
//
// It runs wherever Java and the script that starts Kafka are: VARVE_KAFKA names the script, else it is looked for beside the
// repository. Elsewhere it skips with the reason. It does not test clients, load, crashes or the bucket: the tests above do.
//
//	D1  every field of every answer is compared, but the wording of messages, throttle times and names given at random;
//	    ids, ports and clock values are replaced by what they stand for;
//	D2  a difference is a failure unless a row of the table `intended` names it with its reason, which docs/differences.md gives too;
//	D3  a row of that table that no case needs any more is a failure.
package differential
