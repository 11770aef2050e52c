// SPDX-License-Identifier: Apache-2.0

package metadata

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"

	"github.com/varve/varve/record"
)

// Every value begins with a format number and the id of the operation that wrote it. Each kind counts its own formats.
const (
	headerBytes = 1 + 16
	// formatNow is the newest format of every kind that this binary reads, and the one it writes.
	formatNow = 1
)

// begin starts a value.
func begin(op UUID, size int) []byte {
	b := make([]byte, 0, headerBytes+size)
	b = append(b, formatNow)
	return append(b, op[:]...)
}

// opOf is the operation that wrote a value; zero when it is too short to say.
func opOf(value []byte) (op UUID) {
	if len(value) >= headerBytes {
		copy(op[:], value[1:])
	}
	return op
}

// body checks a value's header and gives what follows.
func body(what string, value []byte) ([]byte, error) {
	if len(value) == 0 {
		return nil, fmt.Errorf("%w: %s is empty", ErrCorrupt, what)
	}
	if f := int(value[0]); f > formatNow {
		return nil, &ErrNewerVersion{What: what, Have: f, Can: formatNow}
	}
	if value[0] == 0 || len(value) < headerBytes {
		return nil, fmt.Errorf("%w: %s of %d bytes has no header", ErrCorrupt, what, len(value))
	}
	return value[headerBytes:], nil
}

// decoder reads the binary bodies. The first fault sticks.
type decoder struct {
	what string
	b    []byte
	err  error
}

func decode(what string, value []byte) *decoder {
	b, err := body(what, value)
	return &decoder{what: what, b: b, err: err}
}

func (d *decoder) fail(how string) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: %s: %s", ErrCorrupt, d.what, how)
	}
	d.b = nil
}

func (d *decoder) varint() int64 {
	if d.err != nil {
		return 0
	}
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.fail("cut short")
		return 0
	}
	d.b = d.b[n:]
	return v
}

// count reads a number of things of at least size bytes each, so that a bad one cannot ask for memory that is not backed.
func (d *decoder) count(size int) int {
	n := d.varint()
	if n < 0 || n > int64(len(d.b)/size) {
		d.fail("impossible count")
		return 0
	}
	return int(n)
}

func (d *decoder) int32() int32 {
	v := d.varint()
	if v != int64(int32(v)) {
		d.fail("number out of range")
	}
	return int32(v)
}

func (d *decoder) uuid() (u UUID) {
	if d.err != nil {
		return u
	}
	if len(d.b) < len(u) {
		d.fail("cut short")
		return u
	}
	copy(u[:], d.b)
	d.b = d.b[len(u):]
	return u
}

func (d *decoder) bytes() []byte {
	n := d.count(1)
	out := append([]byte(nil), d.b[:n]...)
	d.b = d.b[n:]
	return out
}

func (d *decoder) end() error {
	if d.err == nil && len(d.b) != 0 {
		d.fail(fmt.Sprintf("%d bytes too many", len(d.b)))
	}
	return d.err
}

func appendBytes(b, v []byte) []byte {
	b = binary.AppendVarint(b, int64(len(v)))
	return append(b, v...)
}

func encodeLeader(s *LeaderState, op UUID) []byte {
	b := begin(op, 16)
	b = binary.AppendVarint(b, int64(s.Node))
	b = binary.AppendVarint(b, int64(s.Incarnation))
	b = binary.AppendVarint(b, int64(s.Epoch))
	return binary.AppendVarint(b, int64(s.UncleanEpoch))
}

func decodeLeader(kv *KeyValue) (LeaderState, error) {
	d := decode("leader", kv.Value)
	s := LeaderState{
		Node: record.NodeID(d.int32()), Incarnation: Incarnation(d.varint()), Epoch: record.Epoch(d.int32()),
		UncleanEpoch: record.Epoch(d.int32()), Rev: kv.ModRevision,
	}
	return s, d.end()
}

func encodeISR(s *ISRState, op UUID) []byte {
	b := begin(op, 16+24*len(s.Members)+20*len(s.ELR))
	b = binary.AppendVarint(b, int64(len(s.Members)))
	for _, m := range s.Members {
		b = binary.AppendVarint(b, int64(m.Node))
		b = binary.AppendVarint(b, int64(m.Incarnation))
		b = append(b, m.StoreID[:]...)
	}
	b = binary.AppendVarint(b, int64(len(s.ELR)))
	for _, m := range s.ELR {
		b = binary.AppendVarint(b, int64(m.Node))
		b = append(b, m.StoreID[:]...)
	}
	return binary.AppendVarint(b, int64(s.HWFloor))
}

func decodeISR(kv *KeyValue) (ISRState, error) {
	d := decode("isr", kv.Value)
	s := ISRState{Rev: kv.ModRevision}
	if n := d.count(18); n > 0 {
		s.Members = make([]ISRMember, n)
		for i := range s.Members {
			s.Members[i] = ISRMember{Node: record.NodeID(d.int32()), Incarnation: Incarnation(d.varint()), StoreID: d.uuid()}
		}
	}
	if n := d.count(17); n > 0 {
		s.ELR = make([]ELRMember, n)
		for i := range s.ELR {
			s.ELR[i] = ELRMember{Node: record.NodeID(d.int32()), StoreID: d.uuid()}
		}
	}
	s.HWFloor = record.Offset(d.varint())
	return s, d.end()
}

func encodeHead(h *Head, op UUID) []byte {
	size := 48 + 8*len(h.EpochChain)
	for _, p := range h.Pages {
		size += len(p) + 3
	}
	b := begin(op, size)
	for _, v := range []int64{int64(h.TieredEnd), int64(h.LogStart), h.TieredBytes, int64(h.FoldedEnd), h.Count} {
		b = binary.AppendVarint(b, v)
	}
	b = binary.AppendVarint(b, int64(len(h.Pages)))
	for _, p := range h.Pages {
		b = appendBytes(b, p)
	}
	b = binary.AppendVarint(b, int64(len(h.EpochChain)))
	for _, e := range h.EpochChain {
		b = binary.AppendVarint(b, int64(e.Epoch))
		b = binary.AppendVarint(b, int64(e.Start))
	}
	return b
}

func decodeHead(kv *KeyValue) (Head, error) {
	d := decode("head", kv.Value)
	h := Head{
		TieredEnd: record.Offset(d.varint()), LogStart: record.Offset(d.varint()), TieredBytes: d.varint(),
		FoldedEnd: record.Offset(d.varint()), Count: d.varint(), Rev: kv.ModRevision,
	}
	if n := d.count(1); n > 0 {
		h.Pages = make([][]byte, n)
		for i := range h.Pages {
			h.Pages[i] = d.bytes()
		}
	}
	if n := d.count(2); n > 0 {
		h.EpochChain = make([]record.EpochStart, n)
		for i := range h.EpochChain {
			h.EpochChain[i] = record.EpochStart{Epoch: record.Epoch(d.int32()), Start: record.Offset(d.varint())}
		}
	}
	return h, d.end()
}

// Values that change rarely are JSON behind the header. Fields that a reader does not know are ignored: a field that must
// not be ignored takes a new format number.
type (
	topicJSON struct {
		Name      string             `json:"name"`
		Replicas  [][]record.NodeID  `json:"replicas"`
		Overrides map[string]string  `json:"overrides,omitempty"`
		Moves     map[int32]moveJSON `json:"moves,omitempty"`
		AutoRF    bool               `json:"autoRF,omitempty"`
		Deleting  bool               `json:"deleting,omitempty"`
	}
	moveJSON struct {
		Target []record.NodeID `json:"target"`
		Origin []record.NodeID `json:"origin"`
		Auto   bool            `json:"auto,omitempty"`
	}
	drainJSON struct {
		Since int64 `json:"sinceMillis"`
	}
	brokerJSON struct {
		StoreID   string       `json:"storeId"`
		Boots     uint64       `json:"boots"`
		Rack      string       `json:"rack,omitempty"`
		Endpoints []Endpoint   `json:"endpoints"`
		HTTP      string       `json:"http,omitempty"`
		Roles     []string     `json:"roles,omitempty"`
		Versions  VersionRange `json:"versions"`
		Started   int64        `json:"startedMillis"`
	}
	nodeJSON struct {
		Stores []nodeStoreJSON `json:"stores"`
	}
	nodeStoreJSON struct {
		StoreID string `json:"storeId"`
		Boots   uint64 `json:"boots"`
		Stamp   uint64 `json:"stamp,omitempty"`
	}
	genJSON struct {
		ClusterID string `json:"clusterId"`
		Gen       int64  `json:"gen"`
		// Stores are the data directories that the last reconcile has seen; none: there was no reconcile.
		Stores []string `json:"stores,omitempty"`
	}
	versionJSON struct {
		Version int `json:"version"`
	}
	bucketJSON struct {
		ClusterID string `json:"clusterId"`
	}
	deletingJSON struct {
		Name  string `json:"name"`
		Since int64  `json:"sinceMillis"`
	}
	intentJSON struct {
		Kind     IntentKind   `json:"kind"`
		Keys     []string     `json:"keys"`
		UploadID string       `json:"uploadId,omitempty"`
		Base     int64        `json:"base"`
		End      int64        `json:"end"`
		Epoch    record.Epoch `json:"epoch"`
		Started  int64        `json:"startedMillis"`
	}
	gcJSON struct {
		Keys      []string `json:"keys"`
		UploadID  string   `json:"uploadId,omitempty"`
		NotBefore int64    `json:"notBeforeMillis"`
		Reason    string   `json:"reason"`
	}
	pidBlockJSON struct {
		Next int64 `json:"next"`
	}
	roleJSON struct {
		Node        record.NodeID `json:"node"`
		Incarnation Incarnation   `json:"incarnation"`
	}
)

func encodeJSON(v any, op UUID) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic("metadata: a value cannot be encoded: " + err.Error()) // only types of this file come here
	}
	return append(begin(op, len(text)), text...)
}

func decodeJSON(what string, value []byte, into any) error {
	b, err := body(what, value)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrCorrupt, what, err)
	}
	return nil
}

func encodeBroker(b *BrokerInfo, op UUID) []byte {
	return encodeJSON(brokerJSON{
		StoreID: b.StoreID.String(), Boots: b.Boots, Rack: b.Rack, Endpoints: b.Endpoints, HTTP: b.HTTP, Roles: b.Roles,
		Versions: b.Versions, Started: b.Started.UnixMilli(),
	}, op)
}

func decodeBroker(node record.NodeID, kv *KeyValue) (*Broker, error) {
	var j brokerJSON
	if err := decodeJSON("broker", kv.Value, &j); err != nil {
		return nil, err
	}
	store, err := parseUUID(j.StoreID)
	if err != nil {
		return nil, err
	}
	return &Broker{BrokerInfo: BrokerInfo{
		Node: node, StoreID: store, Boots: j.Boots, Rack: j.Rack, Endpoints: j.Endpoints, HTTP: j.HTTP, Roles: j.Roles,
		Versions: j.Versions, Started: time.UnixMilli(j.Started),
	}, Incarnation: Incarnation(kv.CreateRevision), Rev: kv.ModRevision}, nil
}

func decodeTopic(id record.TopicID, kv *KeyValue) (*Topic, error) {
	var j topicJSON
	if err := decodeJSON("topic", kv.Value, &j); err != nil {
		return nil, err
	}
	t := &Topic{
		ID: id, Name: j.Name, Partitions: j.Replicas, Overrides: j.Overrides, AutoRF: j.AutoRF, Deleting: j.Deleting,
		Created: kv.CreateRevision, Rev: kv.ModRevision,
	}
	for index, m := range j.Moves {
		if index < 0 || int(index) >= len(j.Replicas) || len(m.Target) == 0 || len(m.Origin) == 0 {
			return nil, fmt.Errorf("%w: topic %s: move of partition %d", ErrCorrupt, j.Name, index)
		}
		t.assign(index, Assignment{Replicas: j.Replicas[index], Move: &Move{Target: m.Target, Origin: m.Origin, Auto: m.Auto}})
	}
	return t, nil
}

func encodeTopic(t *Topic, op UUID) []byte {
	j := topicJSON{Name: t.Name, Replicas: t.Partitions, Overrides: t.Overrides, AutoRF: t.AutoRF, Deleting: t.Deleting}
	if len(t.Moves) > 0 {
		j.Moves = make(map[int32]moveJSON, len(t.Moves))
	}
	for index, m := range t.Moves {
		j.Moves[index] = moveJSON{Target: m.Target, Origin: m.Origin, Auto: m.Auto}
	}
	return encodeJSON(j, op)
}

func encodeIntent(i *Intent, op UUID) []byte {
	return encodeJSON(intentJSON{
		Kind: i.Kind, Keys: i.Keys, UploadID: i.UploadID, Base: int64(i.Range.Base), End: int64(i.Range.End), Epoch: i.Epoch,
		Started: i.Started.UnixMilli(),
	}, op)
}

func decodeIntent(attempt UUID, kv *KeyValue) (Intent, error) {
	var j intentJSON
	err := decodeJSON("intent", kv.Value, &j)
	return Intent{
		Attempt: attempt, Kind: j.Kind, Keys: j.Keys, UploadID: j.UploadID, Epoch: j.Epoch, Started: time.UnixMilli(j.Started),
		Range: OffsetRange{record.Offset(j.Base), record.Offset(j.End)}, Rev: kv.ModRevision,
	}, err
}

func encodeGC(g *GCRecord, op UUID) []byte {
	return encodeJSON(gcJSON{Keys: g.Keys, UploadID: g.UploadID, NotBefore: g.NotBefore.UnixMilli(), Reason: g.Reason}, op)
}

func decodeGC(attempt UUID, kv *KeyValue) (GCRecord, error) {
	var j gcJSON
	err := decodeJSON("gc record", kv.Value, &j)
	return GCRecord{
		Attempt: attempt, Keys: j.Keys, UploadID: j.UploadID, NotBefore: time.UnixMilli(j.NotBefore), Reason: j.Reason, Rev: kv.ModRevision,
	}, err
}

func parseUUID(s string) (u UUID, err error) {
	id, err := record.ParseTopicIDHex(s)
	if err != nil {
		return u, fmt.Errorf("%w: %q is not a UUID of 32 hexadecimal digits", ErrCorrupt, s)
	}
	return UUID(id), nil
}

func encodeName(id record.TopicID, op UUID) []byte { return append(begin(op, len(id)), id[:]...) }

func decodeName(value []byte) (id record.TopicID, err error) {
	d := decode("topic name", value)
	id = record.TopicID(d.uuid())
	return id, d.end()
}

func encodeConfig(values map[string]string, op UUID) []byte { return encodeJSON(values, op) }

func decodeConfig(value []byte) (map[string]string, error) {
	values := map[string]string{}
	err := decodeJSON("config", value, &values)
	return values, err
}
