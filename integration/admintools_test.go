// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"strings"
	"testing"
	"time"

	"github.com/varve/varve/integration/harness"
)

// adminTools are calls of Apache Kafka's own tools, in order, and what they have to say, one after the other. @ is where the tool wants
// to be told the node, if not in front.
var adminTools = []struct {
	tool string
	args string
	says []string
}{
	{"topics", "--create --topic t --partitions 2", []string{"Created topic t."}},
	{"configs", "--alter --entity-type brokers --entity-name 1 --add-config message.max.bytes=2000000", []string{"Completed updating config for broker 1."}},
	{"configs", "--alter --entity-type brokers --entity-default --add-config message.max.bytes=1900000", []string{"Completed updating default config for brokers"}},
	{"configs", "--describe --entity-type brokers --entity-name 1", []string{"message.max.bytes=2000000",
		"synonyms={DYNAMIC_BROKER_CONFIG:message.max.bytes=2000000, DYNAMIC_DEFAULT_BROKER_CONFIG:message.max.bytes=1900000, DEFAULT_CONFIG:message.max.bytes=1048588}"}},
	{"configs", "--alter --entity-type users --entity-name alice --add-config producer_byte_rate=1024,consumer_byte_rate=2048", []string{"Completed updating config for user alice."}},
	{"configs", "--describe --entity-type users --entity-name alice", []string{"user-principal 'alice' are consumer_byte_rate=2048.0, producer_byte_rate=1024.0"}},
	{"configs", "--alter --entity-type ips --entity-name 127.0.0.9 --add-config connection_creation_rate=5", []string{"Completed updating config for ip 127.0.0.9."}},
	{"configs", "--describe --entity-type ips", []string{"ip '127.0.0.9' are connection_creation_rate=5.0"}},
	{"configs", "--alter --entity-type groups --entity-name g --add-config consumer.session.timeout.ms=50000", []string{"Completed updating config for group g."}},
	{"configs", "--describe --entity-type groups", []string{"group g are:", "consumer.session.timeout.ms=50000"}},
	{"configs", "--alter --entity-type broker-loggers --entity-name 1 --add-config root=DEBUG", []string{"Completed updating config for broker-logger 1."}},
	{"configs", "--describe --entity-type broker-loggers --entity-name 1", []string{"root=DEBUG"}},
	{"features", "describe", []string{"metadata.version", "FinalizedVersionLevel: 4.4"}},
	{"features", "downgrade --feature metadata.version=20", []string{"Could not downgrade metadata.version to 20"}},
	{"acls", "--list", []string{"SecurityDisabledException"}},
	{"log-dirs", "--describe --topic-list t", []string{`"partition":"t-1"`, `"error":null`}},
	{"leader-election", "--election-type preferred --topic t --partition 0", []string{"Valid replica already elected for partitions t-0"}},
	{"transactions", "describe-producers --topic t --partition 0", []string{"ProducerId", "LastSequence"}},
	{"cluster", "unregister @ --id 9", []string{"BrokerIdNotRegisteredException"}},
	{"get-offsets", "--topic t", []string{"t:0:0", "t:1:0"}},
}

// TestKafkasAdminTools: what Kafka's command line shows of a node.
func TestKafkasAdminTools(t *testing.T) {
	harness.KafkaScript(t)
	node := harness.StartNode(t, harness.NodeConfig{Etcd: harness.StartEtcd(t).URL(), Bucket: "file://" + harness.TempDir(t, "bucket")})
	for _, c := range adminTools {
		args := c.args
		if !strings.Contains(args, "@") {
			args = "@ " + args
		}
		args = strings.Replace(args, "@", "--bootstrap-server "+node.Bootstrap(), 1)
		p := harness.KafkaTool(t, c.tool, strings.Fields(args)...)
		p.Wait(2 * time.Minute)
		said := p.Log()
		for _, want := range c.says {
			_, rest, ok := strings.Cut(said, want)
			if !ok {
				t.Errorf("%s %s does not say %q but:\n%s", c.tool, c.args, want, said)
				break
			}
			said = rest
		}
	}
}
