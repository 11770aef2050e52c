// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"
)

const formatHelp = `%s value, %S its length (-1: null), %R its length as a big-endian int32, %k key, %K its length,
%T timestamp in ms, %D timestamp as RFC 3339 in UTC, %h headers as k=v,k=v, %t topic, %p partition, %o offset,
%e leader epoch, %% percent; \n \r \t \\ \xHH`

// appendRecord appends one record's output form.
type appendRecord func(dst []byte, r *kgo.Record) []byte

// compileFormat reads a format as kcat has it.
func compileFormat(format string) (appendRecord, error) {
	var steps []appendRecord
	var literal []byte
	flush := func() {
		if len(literal) > 0 {
			text := literal
			steps = append(steps, func(dst []byte, _ *kgo.Record) []byte { return append(dst, text...) })
			literal = nil
		}
	}
	for i := 0; i < len(format); i++ {
		switch format[i] {
		case '\\':
			b, used, err := unescape(format[i+1:])
			if err != nil {
				return nil, err
			}
			literal = append(literal, b)
			i += used
		case '%':
			i++
			if i == len(format) {
				return nil, fmt.Errorf("format %q ends with a single %%", format)
			}
			if format[i] == '%' {
				literal = append(literal, '%')
				continue
			}
			verb, ok := verbs[format[i]]
			if !ok {
				return nil, fmt.Errorf("format %q: %%%c is not one of %s", format, format[i], oneLine(formatHelp))
			}
			flush()
			steps = append(steps, verb)
		default:
			literal = append(literal, format[i])
		}
	}
	flush()
	return func(dst []byte, r *kgo.Record) []byte {
		for _, step := range steps {
			dst = step(dst, r)
		}
		return dst
	}, nil
}

var verbs = map[byte]appendRecord{
	's': func(dst []byte, r *kgo.Record) []byte { return append(dst, r.Value...) },
	'S': func(dst []byte, r *kgo.Record) []byte { return strconv.AppendInt(dst, lengthOf(r.Value), 10) },
	'R': func(dst []byte, r *kgo.Record) []byte {
		return binary.BigEndian.AppendUint32(dst, uint32(lengthOf(r.Value)))
	},
	'k': func(dst []byte, r *kgo.Record) []byte { return append(dst, r.Key...) },
	'K': func(dst []byte, r *kgo.Record) []byte { return strconv.AppendInt(dst, lengthOf(r.Key), 10) },
	'T': func(dst []byte, r *kgo.Record) []byte { return strconv.AppendInt(dst, r.Timestamp.UnixMilli(), 10) },
	'D': func(dst []byte, r *kgo.Record) []byte { return append(dst, formatTime(r.Timestamp.UTC())...) },
	't': func(dst []byte, r *kgo.Record) []byte { return append(dst, r.Topic...) },
	'p': func(dst []byte, r *kgo.Record) []byte { return strconv.AppendInt(dst, int64(r.Partition), 10) },
	'o': func(dst []byte, r *kgo.Record) []byte { return strconv.AppendInt(dst, r.Offset, 10) },
	'e': func(dst []byte, r *kgo.Record) []byte { return strconv.AppendInt(dst, int64(r.LeaderEpoch), 10) },
	'h': appendHeaders,
}

func appendHeaders(dst []byte, r *kgo.Record) []byte {
	for i, h := range r.Headers {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(append(append(dst, h.Key...), '='), h.Value...)
		if h.Value == nil {
			dst = append(dst, "NULL"...)
		}
	}
	return dst
}

// lengthOf is kcat's length: -1 for null.
func lengthOf(b []byte) int64 {
	if b == nil {
		return -1
	}
	return int64(len(b))
}

// unescape reads what follows a backslash and tells how many bytes it took.
func unescape(s string) (b byte, used int, err error) {
	if s == "" {
		return 0, 0, fmt.Errorf("format ends with a single backslash")
	}
	switch s[0] {
	case 'n':
		return '\n', 1, nil
	case 'r':
		return '\r', 1, nil
	case 't':
		return '\t', 1, nil
	case '\\':
		return '\\', 1, nil
	case 'x':
		if len(s) >= 3 {
			if v, err := strconv.ParseUint(s[1:3], 16, 8); err == nil {
				return byte(v), 3, nil
			}
		}
	}
	return 0, 0, fmt.Errorf("format: \\%c is not one of \\n \\r \\t \\\\ \\xHH", s[0])
}

// appendJSON writes a record as one line that produce --json reads back.
func appendJSON(dst []byte, r *kgo.Record) []byte {
	j := jsonRecord{
		Topic: r.Topic, Partition: &r.Partition, Offset: &r.Offset, LeaderEpoch: &r.LeaderEpoch,
		Timestamp: strconv.AppendInt(nil, r.Timestamp.UnixMilli(), 10),
		Time:      r.Timestamp.UTC().Format(time.RFC3339Nano),
	}
	j.Key, j.KeyBase64 = textOrEncoded(r.Key)
	text, encoded := textOrEncoded(r.Value)
	j.ValueBase64 = encoded
	if text != nil {
		j.Value = quote(*text)
	}
	for _, h := range r.Headers {
		jh := jsonHeader{Key: h.Key}
		jh.Value, jh.ValueBase64 = textOrEncoded(h.Value)
		j.Headers = append(j.Headers, jh)
	}
	line, err := marshalPlain(j)
	if err != nil {
		// Every field is a number or a valid string.
		panic("cli: a record that JSON cannot hold: " + err.Error())
	}
	return append(dst, line...)
}

func textOrEncoded(b []byte) (text, encoded *string) {
	if b == nil {
		return nil, nil
	}
	if utf8.Valid(b) {
		s := string(b)
		return &s, nil
	}
	s := base64.StdEncoding.EncodeToString(b)
	return nil, &s
}

func quote(s string) json.RawMessage {
	b, err := marshalPlain(s)
	if err != nil {
		panic("cli: a valid string that JSON cannot hold: " + err.Error())
	}
	return b[:len(b)-1]
}
