// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// recordSource reads the next record of an input. The record's bytes are its own. io.EOF ends it.
type recordSource interface {
	next() (*kgo.Record, error)
}

// lineSource makes one record of each line.
type lineSource struct {
	in        *bufio.Reader
	separator []byte
	times     *eventTime // nil: the time of sending
	line      int
}

func (l *lineSource) next() (*kgo.Record, error) {
	line, err := readLine(l.in)
	if err != nil {
		return nil, err
	}
	l.line++
	r := &kgo.Record{Value: line}
	if l.times != nil {
		if r.Timestamp, err = l.times.of(line); err != nil {
			return nil, fmt.Errorf("line %d: %w", l.line, err)
		}
	}
	if len(l.separator) > 0 {
		if key, value, ok := bytes.Cut(line, l.separator); ok {
			r.Key, r.Value = key, value
		}
	}
	return r, nil
}

// readLine returns the next line without its end in memory of its own. A last line without an end counts.
func readLine(in *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		if len(line)+len(part) > maxInputRecordBytes {
			return nil, fmt.Errorf("a line is longer than %d bytes, the most that one record can be", maxInputRecordBytes)
		}
		line = append(line, part...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && len(line) == 0:
			return nil, io.EOF
		case err != nil && !errors.Is(err, io.EOF):
			return nil, fmt.Errorf("reading the input: %w", err)
		}
		// A carriage return stays: what comes back is what went in.
		return bytes.TrimSuffix(line, []byte("\n")), nil
	}
}

// delimitedSource reads values that each follow their length, a big-endian uint32.
type delimitedSource struct{ in io.Reader }

func (d *delimitedSource) next() (*kgo.Record, error) {
	var length [4]byte
	if _, err := io.ReadFull(d.in, length[:]); errors.Is(err, io.EOF) {
		return nil, io.EOF
	} else if err != nil {
		return nil, fmt.Errorf("the input ends within a length prefix: %w", err)
	}
	n := binary.BigEndian.Uint32(length[:])
	if n > maxInputRecordBytes {
		return nil, fmt.Errorf("a length prefix says %d bytes, at most %d are allowed; the prefix is a big-endian uint32", n, maxInputRecordBytes)
	}
	value := make([]byte, n)
	if _, err := io.ReadFull(d.in, value); err != nil {
		return nil, fmt.Errorf("the input ends within a record of %d bytes: %w", n, err)
	}
	return &kgo.Record{Value: value}, nil
}

// jsonSource reads one JSON object per record, in the form that consume --output json writes.
type jsonSource struct {
	in    *bufio.Reader
	times *eventTime
	line  int
}

// jsonRecord is one record as JSON. Bytes that are not UTF-8 go into the …Base64 fields.
type jsonRecord struct {
	Topic       string          `json:"topic,omitempty"`
	Partition   *int32          `json:"partition,omitempty"`
	Offset      *int64          `json:"offset,omitempty"`
	Timestamp   json.RawMessage `json:"timestamp,omitempty"`
	Time        string          `json:"time,omitempty"`
	LeaderEpoch *int32          `json:"leaderEpoch,omitempty"`
	Key         *string         `json:"key,omitempty"`
	KeyBase64   *string         `json:"keyBase64,omitempty"`
	Value       json.RawMessage `json:"value,omitempty"`
	ValueBase64 *string         `json:"valueBase64,omitempty"`
	Headers     []jsonHeader    `json:"headers,omitempty"`
}

type jsonHeader struct {
	Key         string  `json:"key"`
	Value       *string `json:"value,omitempty"`
	ValueBase64 *string `json:"valueBase64,omitempty"`
}

func (j *jsonSource) next() (*kgo.Record, error) {
	for {
		line, err := readLine(j.in)
		if err != nil {
			return nil, err
		}
		j.line++
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		r, err := decodeJSONRecord(line)
		if err == nil && j.times != nil {
			r.Timestamp, err = j.times.of(r.Value)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", j.line, err)
		}
		return r, nil
	}
}

func decodeJSONRecord(line []byte) (*kgo.Record, error) {
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	var j jsonRecord
	if err := dec.Decode(&j); err != nil {
		return nil, fmt.Errorf("not a JSON record {\"key\":…,\"value\":…,\"timestamp\":…,\"partition\":…,\"headers\":[{\"key\":…,\"value\":…}]}: %s", plainJSON(err))
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the JSON record; write one per line")
	}
	r := &kgo.Record{Partition: -1}
	var err error
	if j.Partition != nil {
		r.Partition = *j.Partition
	}
	if r.Timestamp, err = jsonTime(j.Timestamp); err != nil {
		return nil, err
	}
	if r.Key, err = textOrBase64("key", j.Key, j.KeyBase64); err != nil {
		return nil, err
	}
	if r.Value, err = jsonValue(j); err != nil {
		return nil, err
	}
	for _, h := range j.Headers {
		v, err := textOrBase64("header "+h.Key, h.Value, h.ValueBase64)
		if err != nil {
			return nil, err
		}
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: h.Key, Value: v})
	}
	return r, nil
}

// jsonValue takes a string as its bytes and any other JSON value as its text; null and none are a null value.
func jsonValue(j jsonRecord) ([]byte, error) {
	if len(j.Value) == 0 || bytes.Equal(j.Value, []byte("null")) {
		return textOrBase64("value", nil, j.ValueBase64)
	}
	if j.ValueBase64 != nil {
		return nil, errors.New("value and valueBase64 are both there")
	}
	if j.Value[0] != '"' {
		return j.Value, nil
	}
	var s string
	if err := json.Unmarshal(j.Value, &s); err != nil {
		return nil, err
	}
	return []byte(s), nil
}

func jsonTime(raw json.RawMessage) (time.Time, error) {
	if len(raw) == 0 || bytes.Equal(raw, []byte("null")) {
		return time.Time{}, nil
	}
	var ms int64
	if json.Unmarshal(raw, &ms) == nil {
		return time.UnixMilli(ms), nil
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		if t, err := time.Parse(time.RFC3339Nano, text); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("timestamp %s is neither milliseconds since 1970 nor RFC 3339", raw)
}

func textOrBase64(what string, text, encoded *string) ([]byte, error) {
	switch {
	case text != nil && encoded != nil:
		return nil, fmt.Errorf("%s is there both as text and as base64", what)
	case text != nil:
		return []byte(*text), nil
	case encoded != nil:
		b, err := base64.StdEncoding.DecodeString(*encoded)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", what, err)
		}
		return b, nil
	}
	return nil, nil
}
