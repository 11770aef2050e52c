// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func newTxnCommand(s *streams) *cobra.Command {
	return group(&cobra.Command{Use: "txn", Short: "List, describe and abort transactions"},
		newTxnListCommand(s), newTxnDescribeCommand(s), newTxnAbortCommand(s))
}

type listedTxn struct {
	ID          string `json:"id"`
	State       string `json:"state"`
	ProducerID  int64  `json:"producerId"`
	Coordinator int32  `json:"coordinator"`
}

// txnStates are the states of a transactional id, by the names that Kafka gives them.
var txnStates = []string{"Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"}

func newTxnListCommand(s *streams) *cobra.Command {
	var states []string
	var pattern string
	cmd := &cobra.Command{Use: "list", Short: "List transactional ids with their state and coordinator", Args: exactArgs()}
	cmd.Flags().StringSliceVar(&states, "state", nil, "only those in these states: "+strings.Join(txnStates, ", "))
	cmd.Flags().StringVar(&pattern, "id-regex", "", "only ids that match this regular expression as a whole")
	conn, out := addConnection(cmd), addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		states, err := choices("--state", states, txnStates)
		if err != nil {
			return err
		}
		ctx, adm, done, err := conn.administer(cmd.Context())
		if err != nil {
			return err
		}
		defer done()
		all, err := adm.ListTransactionsByTxPattern(ctx, nil, states, pattern)
		if err != nil {
			return explain("listing transactions", err)
		}
		list, t := []listedTxn{}, &table{header: []string{"transactional id", "state", "producer id", "coordinator"}}
		for _, x := range all.Sorted() {
			list = append(list, listedTxn{x.TxnID, x.State, x.ProducerID, x.Coordinator})
			t.add(x.TxnID, x.State, x.ProducerID, x.Coordinator)
		}
		return out.show(s.out, list, t)
	}
	return cmd
}

type describedTxn struct {
	listedTxn
	ProducerEpoch int16              `json:"producerEpoch"`
	TimeoutMillis int32              `json:"timeoutMillis"`
	Started       *time.Time         `json:"started,omitempty"`
	Partitions    map[string][]int32 `json:"partitions,omitempty"`
}

func newTxnDescribeCommand(s *streams) *cobra.Command {
	cmd := &cobra.Command{Use: "describe ID...", Short: "Show what transactional ids have come to, and the partitions of open transactions", Args: someArgs("ID"),
		Long: "The states are Kafka's. Ongoing: open. PrepareCommit, PrepareAbort: decided, and not every partition knows it yet. CompleteCommit,\n" +
			"CompleteAbort: how the last one ended; a transaction that was open for longer than its timeout is aborted so. Empty: a producer took the\n" +
			"id, which ends what was open, and has not begun one yet: so it is after `varve txn abort` too.",
	}
	conn, out := addConnection(cmd), addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, ids []string) error {
		ctx, adm, done, err := conn.administer(cmd.Context())
		if err != nil {
			return err
		}
		defer done()
		list := []describedTxn{}
		t := &table{header: []string{"transactional id", "state", "producer", "timeout", "open since", "partitions", "coordinator"}}
		for _, id := range ids {
			x, err := describeTxn(ctx, adm, id)
			if err != nil {
				return err
			}
			d := describedTxn{listedTxn{id, x.State, x.ProducerID, x.Coordinator}, x.ProducerEpoch, x.TimeoutMillis, nil, map[string][]int32{}}
			since, partitions := "-", ""
			if x.StartTimestamp >= 0 {
				at := time.UnixMilli(x.StartTimestamp).UTC()
				d.Started, since = &at, at.Format(time.RFC3339)
			}
			for _, topic := range x.Topics.Sorted() {
				d.Partitions[topic.Topic] = topic.Partitions
				for _, p := range topic.Partitions {
					partitions += fmt.Sprintf(" %s-%d", topic.Topic, p)
				}
			}
			list = append(list, d)
			t.add(id, x.State, fmt.Sprintf("%d/%d", x.ProducerID, x.ProducerEpoch), time.Duration(x.TimeoutMillis)*time.Millisecond, since, partitions, x.Coordinator)
		}
		return out.show(s.out, list, t)
	}
	return cmd
}

func describeTxn(ctx context.Context, adm *admin, id string) (x kadm.DescribedTransaction, err error) {
	all, err := adm.DescribeTransactions(ctx, id)
	if err == nil {
		x, err = all.On(id, nil)
	}
	if err == nil {
		err = x.Err
	}
	return x, explain("describing transactional id "+id, err)
}

type abortedTxn struct {
	ID            string `json:"id"`
	Aborted       bool   `json:"aborted"` // false: none was open
	ProducerID    int64  `json:"fencedProducerId"`
	ProducerEpoch int16  `json:"fencedProducerEpoch"`
}

func newTxnAbortCommand(s *streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "abort ID",
		Short: "Abort the open transaction of a transactional id and fence its producer",
		Long: "The producer that has the transactional id is fenced: it fails at its next request, whether it still lives or not. The command returns\n" +
			"when every partition knows of the end of the transaction.",
		Args: exactArgs("ID"),
	}
	conn, out := addConnection(cmd), addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, adm, done, err := conn.administer(cmd.Context())
		if err != nil {
			return err
		}
		defer done()
		id := args[0]
		x, err := describeTxn(ctx, adm, id) // an id that nobody has used is not made by aborting it
		if err != nil {
			return err
		}
		if err := fenceTxn(ctx, adm, id, x.TimeoutMillis); err != nil {
			return err
		}
		what := "no transaction was open"
		if x.State == "Ongoing" {
			what = "its transaction is aborted"
		}
		if *out == outputJSON {
			return writeJSON(s.out, abortedTxn{ID: id, Aborted: x.State == "Ongoing", ProducerID: x.ProducerID, ProducerEpoch: x.ProducerEpoch})
		}
		fmt.Fprintf(s.out, "%s: %s, producer %d/%d is fenced\n", id, what, x.ProducerID, x.ProducerEpoch)
		return nil
	}
	return cmd
}

// fenceTxn takes the transactional id, as a new producer does: what is open ends first.
func fenceTxn(ctx context.Context, adm *admin, id string, timeoutMillis int32) error {
	doing := "aborting the transaction of " + id
	for {
		req := kmsg.NewPtrInitProducerIDRequest()
		req.TransactionalID, req.TransactionTimeoutMillis, req.ProducerID, req.ProducerEpoch = &id, timeoutMillis, -1, -1
		resp, err := req.RequestWith(ctx, adm.kafka)
		if err == nil {
			err = kerr.ErrorForCode(resp.ErrorCode)
		}
		if !errors.Is(err, kerr.ConcurrentTransactions) {
			return explain(doing, err)
		}
		select {
		case <-time.After(txnPoll):
		case <-ctx.Done():
			return fmt.Errorf("%s: it is decided, but not every partition knows it yet: `varve txn describe %s` shows the rest", doing, id)
		}
	}
}
