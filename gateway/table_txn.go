// SPDX-License-Identifier: Apache-2.0

package gateway

import "github.com/twmb/franz-go/pkg/kmsg"

// txnAPIs are the rows of transactions, as their coordinator serves them. Versions are Kafka 4.4's.
func txnAPIs() []api {
	return []api{
		{key: 24, name: "AddPartitionsToTxn", min: 0, max: 5, body: func() kmsg.Request { return new(kmsg.AddPartitionsToTxnRequest) }, serve: (*Server).addPartitionsToTxn},
		{key: 25, name: "AddOffsetsToTxn", min: 0, max: 4, body: func() kmsg.Request { return new(kmsg.AddOffsetsToTxnRequest) }, serve: (*Server).addOffsetsToTxn},
		{key: 26, name: "EndTxn", min: 0, max: 5, body: func() kmsg.Request { return new(kmsg.EndTxnRequest) }, serve: (*Server).endTxn},
		{key: 28, name: "TxnOffsetCommit", min: 0, max: 6, body: func() kmsg.Request { return new(kmsg.TxnOffsetCommitRequest) }, serve: (*Server).txnOffsetCommit},
		{key: 65, name: "DescribeTransactions", min: 0, max: 0, body: func() kmsg.Request { return new(kmsg.DescribeTransactionsRequest) }, serve: (*Server).describeTransactions},
		{key: 66, name: "ListTransactions", min: 0, max: 2, body: func() kmsg.Request { return new(kmsg.ListTransactionsRequest) }, serve: (*Server).listTransactions},
	}
}
