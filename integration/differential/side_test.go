// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// patience bounds the wait for one answer.
const patience = 20 * time.Second

// side is one of the two brokers, with what it answered.
type side struct {
	t       *testing.T
	kafka   bool
	address string
	conn    net.Conn
	corr    int32
	ids     map[[16]byte]string // names of the topic ids it gave
	topics  map[string][16]byte
	old     int32 // leader epochs before and after the restart
	now     int32
	seen    []observation
}

// observation is one answer, taken apart.
type observation struct {
	name   string
	fields []field
}

type field struct{ path, value string }

func newSide(t *testing.T, address string) *side {
	s := &side{t: t, address: address, ids: map[[16]byte]string{}, topics: map[string][16]byte{}}
	t.Cleanup(s.hangUp)
	return s
}

func (s *side) hangUp() {
	if s.conn != nil {
		s.conn.Close()
		s.conn = nil
	}
}

// send writes a request at a version.
func (s *side) send(req kmsg.Request, version int16) {
	if s.conn == nil {
		conn, err := net.DialTimeout("tcp", s.address, patience)
		if err != nil {
			s.t.Fatal(err)
		}
		s.conn = conn
	}
	s.corr++
	req.SetVersion(version)
	frame := kmsg.NewRequestFormatter(kmsg.FormatterClientID("differential")).AppendRequest(nil, req, s.corr)
	if err := s.conn.SetDeadline(time.Now().Add(patience)); err != nil {
		s.t.Fatal(err)
	}
	if _, err := s.conn.Write(frame); err != nil {
		s.t.Fatalf("%s: write: %v", s.address, err)
	}
}

var errHungUp = errors.New("the broker closed the connection")

// receive reads the answer to the last request sent.
func (s *side) receive(req kmsg.Request) (kmsg.Response, error) {
	var size [4]byte
	if _, err := io.ReadFull(s.conn, size[:]); err != nil {
		s.hangUp()
		if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || !isTimeout(err) {
			return nil, errHungUp
		}
		return nil, fmt.Errorf("no answer: %w", err)
	}
	frame := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(s.conn, frame); err != nil {
		return nil, err
	}
	if corr := int32(binary.BigEndian.Uint32(frame)); corr != s.corr {
		return nil, fmt.Errorf("correlation id %d, want %d", corr, s.corr)
	}
	resp := req.ResponseKind()
	resp.SetVersion(req.GetVersion())
	body := frame[4:]
	if resp.IsFlexible() && req.Key() != int16(kmsg.ApiVersions) {
		body = body[1:] // no tags in any answer's header
	}
	if req.Key() == int16(kmsg.ApiVersions) && binary.BigEndian.Uint16(body) == 35 {
		resp.SetVersion(0)
	}
	return resp, resp.ReadFrom(body)
}

func isTimeout(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}

// ask sends a request, notes the answer under a name and returns it: nil when there was none.
func (s *side) ask(name string, version int16, req kmsg.Request) kmsg.Response {
	s.t.Helper()
	s.send(req, version)
	resp, err := s.receive(req)
	if err != nil {
		s.note(name, version, field{"answer", err.Error()})
		return nil
	}
	s.note(name, version, s.flatten(resp)...)
	return resp
}

func (s *side) note(name string, version int16, fields ...field) {
	s.seen = append(s.seen, observation{fmt.Sprintf("%s v%d", name, version), fields})
}

// must asks for what the script needs and cannot go on without; the answer is not compared.
func (s *side) must(version int16, req kmsg.Request) kmsg.Response {
	s.t.Helper()
	s.send(req, version)
	resp, err := s.receive(req)
	if err != nil {
		s.t.Fatalf("%s: %T: %v", s.address, req, err)
	}
	return resp
}

// create makes a topic and waits until its partitions have a leader.
func (s *side) create(topic string, partitions int32, configs ...string) {
	s.t.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 15000
	req.Topics = append(req.Topics, newTopic(topic, partitions, 1, configs...))
	resp := s.must(7, req).(*kmsg.CreateTopicsResponse)
	if code := resp.Topics[0].ErrorCode; code != 0 {
		s.t.Fatalf("%s: create %s: code %d", s.address, topic, code)
	}
	s.topics[topic], s.ids[resp.Topics[0].TopicID] = resp.Topics[0].TopicID, topic
	s.awaitLeaders(topic, partitions)
}

func (s *side) awaitLeaders(topic string, partitions int32) {
	s.t.Helper()
	for deadline := time.Now().Add(patience); !s.led(topic, partitions); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("%s: %s has no leaders", s.address, topic)
		}
	}
}

// led tells whether every partition answers: metadata may name a leader before the leader knows.
func (s *side) led(topic string, partitions int32) bool {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = topic
	for i := range partitions {
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Partition, p.Timestamp = i, -1
		t.Partitions = append(t.Partitions, p)
	}
	req.Topics = append(req.Topics, t)
	for _, p := range s.must(7, req).(*kmsg.ListOffsetsResponse).Topics[0].Partitions {
		if p.ErrorCode != 0 {
			return false
		}
	}
	return s.epoch(topic) >= 0
}

// epoch is the leader epoch of a topic's first partition.
func (s *side) epoch(topic string) int32 {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = append(req.Topics, kmsg.MetadataRequestTopic{Topic: &topic})
	partitions := s.must(12, req).(*kmsg.MetadataResponse).Topics[0].Partitions
	if len(partitions) == 0 {
		return -1
	}
	return partitions[0].LeaderEpoch
}

func newTopic(topic string, partitions int32, replicas int16, configs ...string) kmsg.CreateTopicsRequestTopic {
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = topic, partitions, replicas
	for i := 0; i+1 < len(configs); i += 2 {
		t.Configs = append(t.Configs, kmsg.CreateTopicsRequestTopicConfig{Name: configs[i], Value: &configs[i+1]})
	}
	return t
}
