// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/internal/golden"
	"github.com/varve/varve/record"
)

// oracleEnv names a broker to send the administration scripts to in place of our own, e.g. Apache Kafka 4.4 on one node with
// node.id 1. Its answers must equal the golden files but for the lines that say where we differ on purpose.
const oracleEnv = "VARVE_ADMIN_ORACLE"

// wireClient sends one request at a time over one connection, at exactly the version asked for.
type wireClient struct {
	t    *testing.T
	dial func() (net.Conn, error)
	nc   net.Conn
	corr int32
}

func (c *wireClient) close() {
	if c.nc != nil {
		_ = c.nc.Close()
		c.nc = nil
	}
}

// do gives the answer, or an error when the connection was closed in place of one.
func (c *wireClient) do(version int16, req kmsg.Request) (kmsg.Response, error) {
	c.t.Helper()
	if c.nc == nil {
		nc, err := c.dial()
		if err != nil {
			c.t.Fatal(err)
		}
		c.nc = nc
	}
	req.SetVersion(version)
	c.corr++
	frame := kmsg.NewRequestFormatter(kmsg.FormatterClientID("script")).AppendRequest(nil, req, c.corr)
	_ = c.nc.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := c.nc.Write(frame); err != nil {
		c.close()
		return nil, err
	}
	var size [4]byte
	if _, err := io.ReadFull(c.nc, size[:]); err != nil {
		c.close()
		return nil, err
	}
	body := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(c.nc, body); err != nil {
		c.close()
		return nil, err
	}
	if got := int32(binary.BigEndian.Uint32(body)); got != c.corr {
		c.t.Fatalf("answer to request %d, want %d", got, c.corr)
	}
	body = body[4:]
	resp := req.ResponseKind()
	if resp.IsFlexible() && resp.Key() != apiVersionsKey {
		body = body[1:]
	}
	resp.SetVersion(version)
	if err := resp.ReadFrom(body); err != nil {
		c.t.Fatalf("%s v%d: %v", kmsg.NameForKey(req.Key()), version, err)
	}
	return resp, nil
}

// adminScript is a conversation about topics whose names begin with a prefix of its own; what comes back is written down line by line.
type adminScript struct {
	t      *testing.T
	wire   *wireClient
	prefix string
	lines  []string
	oracle bool
}

func (x *adminScript) topic(name string) string { return x.prefix + name }

// do sends and writes the answer down.
func (x *adminScript) do(name string, version int16, req kmsg.Request) kmsg.Response {
	x.t.Helper()
	resp, err := x.wire.do(version, req)
	if err != nil {
		x.lines = append(x.lines, fmt.Sprintf("v%d %s: closed", version, name))
		return nil
	}
	x.record(name, version, resp)
	return resp
}

// record writes an answer down.
func (x *adminScript) record(name string, version int16, resp kmsg.Response) {
	line := fmt.Sprintf("v%d %s: %s", version, name, render(reflect.ValueOf(resp)))
	x.lines = append(x.lines, strings.ReplaceAll(line, x.prefix, "T-"))
}

// quiet sends without writing down.
func (x *adminScript) quiet(version int16, req kmsg.Request) kmsg.Response {
	x.t.Helper()
	resp, err := x.wire.do(version, req)
	if err != nil {
		x.t.Fatalf("%s v%d: %v", kmsg.NameForKey(req.Key()), version, err)
	}
	return resp
}

func (x *adminScript) note(format string, args ...any) {
	x.lines = append(x.lines, strings.ReplaceAll(fmt.Sprintf(format, args...), x.prefix, "T-"))
}

// notWritten are fields that differ from run to run, or are prose.
var notWritten = map[string]bool{"Version": true, "UnknownTags": true, "ThrottleMillis": true, "ErrorMessage": true, "Host": true, "Port": true,
	"Documentation": true, "Dir": true, "ClusterID": true, "TotalBytes": true, "LastTimestamp": true, "UsableBytes": true}

// unordered are lists that Kafka gives in the order of a hash.
var unordered = map[string]bool{"AlterClientQuotasResponseEntry": true, "AlterClientQuotasResponseEntryEntity": true, "DescribeClientQuotasResponseEntry": true, "ListConfigResourcesResponseConfigResource": true, "AlterReplicaLogDirsResponseTopicPartition": true, "AlterUserSCRAMCredentialsResponseResult": true, "DescribeUserSCRAMCredentialsResponseResult": true, "DescribeClientQuotasResponseEntryEntity": true, "DescribeClientQuotasResponseEntryValue": true,
	"MetadataResponseTopic": true, "DeleteRecordsResponseTopicPartition": true, "DescribeConfigsResponseResourceConfig": true}

// render writes a response in one line: error codes always, other fields when they are not zero.
func render(v reflect.Value) string {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return "null"
		}
		return render(v.Elem())
	case reflect.Struct:
		var parts []string
		for i := range v.NumField() {
			name, f := v.Type().Field(i).Name, v.Field(i)
			if notWritten[name] || (f.IsZero() && name != "ErrorCode") {
				continue
			}
			parts = append(parts, name+"="+render(f))
		}
		return "{" + strings.Join(parts, " ") + "}"
	case reflect.Slice:
		if v.Len() > 12 {
			return "[many]"
		}
		var parts []string
		for i := range v.Len() {
			parts = append(parts, render(v.Index(i)))
		}
		if unordered[v.Type().Elem().Name()] {
			slices.Sort(parts)
		}
		return "[" + strings.Join(parts, " ") + "]"
	case reflect.Array:
		return "id"
	}
	return strings.ReplaceAll(fmt.Sprint(v.Interface()), "\n", " ")
}

// golden compares what was written down with testdata/admin/NAME.golden. From an oracle it compares what differs from there with
// NAME.kafka, which lists where we answer otherwise than Apache Kafka 4.4.0 on purpose.
func (x *adminScript) golden(name string) {
	x.t.Helper()
	path := filepath.Join("testdata", "admin", name+".golden")
	got := x.lines
	if x.oracle {
		got = differences(readLines(x.t, path), x.lines)
		path = filepath.Join("testdata", "admin", name+".kafka")
	}
	golden.Check(x.t, path, strings.Join(append(got, ""), "\n"))
}

func readLines(t *testing.T, path string) []string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(b) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
}

// differences pairs the lines of two runs of one script where they are not the same.
func differences(ours, oracles []string) (out []string) {
	for i := range max(len(ours), len(oracles)) {
		a, b := "nothing", "nothing"
		if i < len(ours) {
			a = ours[i]
		}
		if i < len(oracles) {
			b = oracles[i]
		}
		if a != b {
			out = append(out, "varve "+a, "kafka "+b)
		}
	}
	return out
}

// makeTopic creates a topic that the script then talks about.
func (x *adminScript) makeTopic(name string, partitions int32, configs ...string) [16]byte {
	x.t.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 10000
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = x.topic(name), partitions, 1
	for i := 0; i < len(configs); i += 2 {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = configs[i], kmsg.StringPtr(configs[i+1])
		t.Configs = append(t.Configs, c)
	}
	req.Topics = append(req.Topics, t)
	resp := x.quiet(7, req).(*kmsg.CreateTopicsResponse)
	if resp.Topics[0].ErrorCode != 0 {
		x.t.Fatalf("creating %s: error %d %v", t.Topic, resp.Topics[0].ErrorCode, *resp.Topics[0].ErrorMessage)
	}
	x.waitFor(t.Topic)
	return resp.Topics[0].TopicID
}

// produce appends n records to a partition.
func (x *adminScript) produce(name string, partition int32, n int) {
	x.t.Helper()
	var b record.Builder
	b.LeaderEpoch = -1
	for i := range n {
		b.Add(time.Now().UnixMilli(), []byte("k"), []byte(fmt.Sprint(i)))
	}
	batch, err := b.Build()
	if err != nil {
		x.t.Fatal(err)
	}
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, 10000
	t := kmsg.NewProduceRequestTopic()
	t.Topic = x.topic(name)
	p := kmsg.NewProduceRequestTopicPartition()
	p.Partition, p.Records = partition, batch
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	const notLeader, unknownTopic, attempts = 6, 3, 500
	var code int16
	for range attempts { // Kafka answers CreateTopics a little before its leaders serve
		code = x.quiet(9, req).(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode
		if code != notLeader && code != unknownTopic {
			break
		}
	}
	if code != 0 {
		x.t.Fatalf("producing to %s: error %d", t.Topic, code)
	}
}
