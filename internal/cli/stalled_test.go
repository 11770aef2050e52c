// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// refusing is a broker that has every topic with one partition and answers NOT_ENOUGH_REPLICAS to each produce.
func refusing(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for r := bufio.NewReader(c); answerOne(r, c, l.Addr().(*net.TCPAddr).Port) == nil; {
				}
			}()
		}
	}()
	return l.Addr().String()
}

func answerOne(r *bufio.Reader, w io.Writer, port int) error {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return err
	}
	frame := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(r, frame); err != nil {
		return err
	}
	req := kmsg.RequestForKey(int16(binary.BigEndian.Uint16(frame)))
	req.SetVersion(int16(binary.BigEndian.Uint16(frame[2:])))
	body := frame[10+max(0, int(int16(binary.BigEndian.Uint16(frame[8:])))):]
	if req.IsFlexible() {
		body = body[1:] // no tags
	}
	if err := req.ReadFrom(body); err != nil {
		return err
	}
	resp := req.ResponseKind()
	switch resp := resp.(type) {
	case *kmsg.ApiVersionsResponse:
		for key, most := range map[int16]int16{0: 9, 3: 9, 18: 3, 22: 4, 32: 4} {
			resp.ApiKeys = append(resp.ApiKeys, kmsg.ApiVersionsResponseApiKey{ApiKey: key, MaxVersion: most})
		}
	case *kmsg.MetadataResponse:
		resp.ControllerID = 1
		resp.Brokers = []kmsg.MetadataResponseBroker{{NodeID: 1, Host: "127.0.0.1", Port: int32(port)}}
		for _, asked := range req.(*kmsg.MetadataRequest).Topics {
			topic := kmsg.NewMetadataResponseTopic()
			topic.Topic = asked.Topic
			p := kmsg.NewMetadataResponseTopicPartition()
			p.Leader, p.Replicas, p.ISR = 1, []int32{1}, []int32{1}
			topic.Partitions = append(topic.Partitions, p)
			resp.Topics = append(resp.Topics, topic)
		}
	case *kmsg.InitProducerIDResponse:
		resp.ProducerID = 1
	case *kmsg.ProduceResponse:
		for _, asked := range req.(*kmsg.ProduceRequest).Topics {
			topic := kmsg.NewProduceResponseTopic()
			topic.Topic = asked.Topic
			for _, p := range asked.Partitions {
				refused := kmsg.NewProduceResponseTopicPartition()
				refused.Partition, refused.ErrorCode, refused.BaseOffset = p.Partition, kerr.NotEnoughReplicas.Code, -1
				topic.Partitions = append(topic.Partitions, refused)
			}
			resp.Topics = append(resp.Topics, topic)
		}
	}
	out := append([]byte{0, 0, 0, 0}, frame[4:8]...)
	if resp.IsFlexible() && req.Key() != 18 {
		out = append(out, 0)
	}
	out = resp.AppendTo(out)
	binary.BigEndian.PutUint32(out, uint32(len(out)-4))
	_, err := w.Write(out)
	return err
}

// TestProduceSaysWhyNothingIsAcknowledged: it names what the broker answers all the time, where to look, and the time that it waited.
func TestProduceSaysWhyNothingIsAcknowledged(t *testing.T) {
	began := time.Now()
	code, _, errs := runCLI(t, "x\n", "produce", "logs", "--bootstrap", refusing(t), "--delivery-timeout", "1s")
	waited := time.Since(began)
	if code != exitFailed || !strings.Contains(errs, "NOT_ENOUGH_REPLICAS") || !strings.Contains(errs, "`varve why logs`") {
		t.Fatalf("%d %s", code, errs)
	}
	m := regexp.MustCompile(`nothing acknowledged for ([0-9.]+)s`).FindStringSubmatch(errs)
	if m == nil {
		t.Fatal(errs)
	}
	if said, _ := strconv.ParseFloat(m[1], 64); said < 1 || said > waited.Seconds()+0.1 {
		t.Errorf("it says %s s, the command took %s", m[1], waited)
	}
}
