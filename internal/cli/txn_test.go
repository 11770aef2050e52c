// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// devTxns opens a transaction, looks at it and aborts it from outside.
func devTxns(t *testing.T) {
	must(t, "", "topic", "create", "transacted", "--partitions", "1")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(os.Getenv(envBootstrap)), kgo.TransactionalID("tx 1"), kgo.DefaultProduceTopic("transacted"))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := cl.ProduceSync(ctx, kgo.StringRecord("never seen")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if out := must(t, "", "txn", "list", "--state", "Ongoing"); !strings.Contains(out, "tx 1") || !strings.Contains(out, "Ongoing") {
		t.Errorf("list: %s", out)
	}
	describe := func() describedTxn {
		t.Helper()
		var all []describedTxn
		if err := json.Unmarshal([]byte(must(t, "", "txn", "describe", "tx 1", "-o", "json")), &all); err != nil || len(all) != 1 {
			t.Fatalf("%v: %+v", err, all)
		}
		return all[0]
	}
	if d := describe(); d.State != "Ongoing" || d.Started == nil || len(d.Partitions["transacted"]) != 1 {
		t.Errorf("describe: %+v", d)
	}
	if out := must(t, "", "txn", "abort", "tx 1"); !strings.Contains(out, "its transaction is aborted") {
		t.Errorf("abort: %s", out)
	}
	if err := cl.EndTransaction(ctx, kgo.TryCommit); err == nil {
		t.Error("a transaction that was aborted is committed")
	}
	if d := describe(); d.State != "Empty" || d.Started != nil || len(d.Partitions) != 0 {
		t.Errorf("describe: %+v", d)
	}
	if out := must(t, "", "txn", "describe", "tx 1"); !strings.Contains(out, "TRANSACTIONAL ID") || !strings.Contains(out, "Empty") {
		t.Errorf("describe: %s", out)
	}
	must(t, "", "topic", "delete", "transacted")
	for _, verb := range []string{"describe", "abort"} {
		if code, _, errs := runCLI(t, "", "txn", verb, "nobody's"); code != exitFailed || !strings.Contains(errs, "txn list") {
			t.Errorf("%s of an id that nobody uses: %d %s", verb, code, errs)
		}
	}
}
