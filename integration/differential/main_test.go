// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/varve/varve/integration/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// startOfRun is the one clock reading that both sides' timestamps are made from.
var startOfRun = time.Now().UnixMilli()

// longSession is the session and the rebalance timeout of a group's members on both sides, in milliseconds: whatever the machine does
// meanwhile, a member that did not fail is not put out.
const longSession = 10 * 60 * 1000

// sessionConfigs give it to consumer groups.
var sessionConfigs = []string{
	fmt.Sprint("group.consumer.session.timeout.ms=", longSession), fmt.Sprint("group.consumer.max.session.timeout.ms=", longSession),
}

// startKafka starts one Apache Kafka node that ends with the test and returns its directory and address.
func startKafka(t *testing.T) (dir, address string) {
	t.Helper()
	script := harness.KafkaScript(t)
	dir = harness.TempDir(t, "kafka")
	// The script takes the hundredth port above for the controller.
	port := harness.Port(t)
	args := []string{"start", dir, "-p", strconv.Itoa(port)}
	for _, c := range sessionConfigs {
		args = append(args, "-o", c)
	}
	cmd := exec.Command(script, args...)
	cmd.Env = append(os.Environ(), "VARVE_KAFKA_HEAP=512m")
	t.Cleanup(func() {
		if text, err := exec.Command(script, "stop", dir).CombinedOutput(); err != nil {
			t.Logf("stop Kafka: %v: %s", err, text)
		}
	})
	text, err := cmd.Output()
	if err != nil {
		t.Fatalf("start Kafka: %v: %s", err, text)
	}
	_, address, ok := strings.Cut(strings.TrimSpace(string(text)), "bootstrap=")
	if !ok {
		t.Fatalf("start Kafka: no bootstrap in %q", text)
	}
	return dir, address
}

// scripts are the requests, in groups that share no topic.
var scripts = []struct {
	name string
	run  func(*side)
}{
	{"produce", produceScript},
	{"idempotence", idempotenceScript},
	{"fetch", fetchScript},
	{"sessions", sessionScript},
	{"list-offsets", listOffsetsScript},
	{"epochs", epochScript},
	{"delete-records", deleteRecordsScript},
	{"topics", topicsScript},
	{"configs", configsScript},
	{"quotas", quotasScript},
	{"rest", restScript},
	{"versions", versionsScript},
	{"consumer-groups", consumerGroupsScript},
}

func TestDifferential(t *testing.T) {
	dir, kafka := startKafka(t)
	node := harness.StartNode(t, harness.NodeConfig{
		Etcd: harness.StartEtcd(t).URL(), Bucket: "file://" + harness.TempDir(t, "bucket"),
		Set: append([]string{"auto.create.topics.enable=false", "log.segment.delete.delay.ms=1000"}, sessionConfigs...),
	})
	used := make([]int, len(intended))
	total, ran := tally{}, 0
	for _, s := range scripts {
		t.Run(s.name, func(t *testing.T) {
			theirs, ours := newSide(t, kafka), newSide(t, node.Bootstrap())
			theirs.kafka = true
			s.run(theirs)
			s.run(ours)
			total.add(compare(t, theirs.seen, ours.seen, used))
			ran++
		})
	}
	t.Run("restart", func(t *testing.T) {
		theirs, ours := restart(t, dir, kafka, node)
		total.add(compare(t, theirs.seen, ours.seen, used))
		ran++
	})
	t.Logf("answers compared: %d, fields: %d, intended differences met: %d", total.cases, total.fields, total.intended)
	if t.Failed() || ran <= len(scripts) { // or -run chose some
		return
	}
	for i, n := range used {
		if n == 0 {
			t.Errorf("row %d of the intended differences is not needed: %+v", i, intended[i])
		}
	}
}
