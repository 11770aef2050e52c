// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"reflect"
	"regexp"
	"strings"
	"syscall"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// errUsage marks what the user typed wrongly: exit code 2.
var errUsage = errors.New("wrong usage")

// errReported ends a command with code 1 after it has printed its findings itself.
var errReported = errors.New("already reported")

type usageError struct{ text string }

func (e *usageError) Error() string        { return e.text }
func (e *usageError) Is(target error) bool { return target == errUsage }

func usagef(format string, args ...any) error {
	return &usageError{text: fmt.Sprintf(format, args...)}
}

// hints says what to do about a broker's answer. A code without an entry is shown with the text that Kafka gives it.
var hints = map[*kerr.Error]string{
	kerr.UnknownTopicOrPartition:      "see `varve topic list`, or create it with `varve topic create`",
	kerr.UnknownTopicID:               "the topic was deleted or created again meanwhile: run the command once more",
	kerr.TopicAlreadyExists:           "choose another name, or change it with `varve topic alter`",
	kerr.InvalidReplicationFactor:     "use at most as many replicas as there are nodes, or leave --replication-factor out",
	kerr.InvalidConfig:                "`varve config describe --topic TOPIC --all` lists names and values",
	kerr.TopicAuthorizationFailed:     "log in as a principal that has the ACL",
	kerr.ClusterAuthorizationFailed:   "log in as a principal that has the ACL",
	kerr.SaslAuthenticationFailed:     "check --sasl-mechanism, --sasl-user and the password",
	kerr.NotEnoughReplicas:            "too few replicas are in sync (min.insync.replicas): `varve topic describe TOPIC` shows them",
	kerr.NotEnoughReplicasAfterAppend: "too few replicas are in sync (min.insync.replicas): `varve topic describe TOPIC` shows them",
	kerr.NotLeaderForPartition:        "the leader is changing or cut off: `varve why TOPIC` says what it waits for, then retry",
	kerr.LeaderNotAvailable:           "nobody leads it right now: `varve why TOPIC` says what it waits for, then retry",
	kerr.OffsetOutOfRange:             "`varve offsets TOPIC` shows the range",
	kerr.MessageTooLarge:              "raise max.message.bytes of the topic or send less per batch",
	kerr.KafkaStorageError:            "the node cannot use its disk or the bucket right now: see its log and /readyz, then retry",
	kerr.InvalidTimestamp:             "message.timestamp.before.max.ms and …after.max.ms of the topic bound it; a time in milliseconds since 1970 is read with --time-layout unixms",
	kerr.UnknownMemberID:              "the group has members: stop them first (`varve group describe GROUP` shows them)",
	kerr.NonEmptyGroup:                "stop its members first: `varve group describe GROUP` shows them",
	kerr.GroupIDNotFound:              "see `varve group list`",
	kerr.TransactionalIDNotFound:      "see `varve txn list`",
	kerr.ConcurrentTransactions:       "the transaction before is still being ended: `varve txn describe ID` shows it, then retry",
	kerr.UnsupportedVersion:           "the broker is too old for this command",
}

// explain turns an error of the client library into one line of what was wrong and what to do.
func explain(doing string, err error) error {
	if err == nil {
		return nil
	}
	var ke *kerr.Error
	if errors.As(err, &ke) {
		if hint, ok := hints[ke]; ok {
			return fmt.Errorf("%s: %w; %s", doing, brokerError(ke), hint)
		}
		return fmt.Errorf("%s: %w", doing, brokerError(ke))
	}
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns):
		return fmt.Errorf("%s: host %q is not known (%w); check --bootstrap", doing, dns.Name, err)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%s: nothing listens there (%w); start a broker with `varve dev`, or check --bootstrap", doing, err)
	case errors.Is(err, kgo.ErrRecordTimeout), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s: no answer in time (%w); check --bootstrap and the broker's log, or raise --timeout", doing, err)
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("%s: interrupted", doing)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// brokerErr is an answer with an error code; it prints Kafka's name of the code.
type brokerErr struct{ ke *kerr.Error }

func brokerError(ke *kerr.Error) error { return &brokerErr{ke} }
func (e *brokerErr) Error() string {
	return e.ke.Message + " (" + strings.TrimRight(e.ke.Description, ".") + ")"
}
func (e *brokerErr) Unwrap() error { return e.ke }

// answered is explain for an answer that may carry the broker's own words.
func answered(doing string, err error, message string) error {
	if err == nil {
		return nil
	}
	var ke *kerr.Error
	if message == "" || !errors.As(err, &ke) {
		return explain(doing, err)
	}
	return fmt.Errorf("%s: %s: %s", doing, ke.Message, oneLine(message))
}

// goNumber is how Go says that a text is no number.
var goNumber = regexp.MustCompile(`strconv\.[A-Za-z]+: parsing "[^"]*": (invalid syntax|value out of range)`)

// plainFlag says without Go's names what is wrong with a flag.
func plainFlag(err error) string {
	return goNumber.ReplaceAllStringFunc(err.Error(), func(m string) string {
		if strings.HasSuffix(m, "range") {
			return "out of range"
		}
		return "not a number"
	})
}

// plainJSON says without Go's names what is wrong with a JSON text.
func plainJSON(err error) string {
	var kind *json.UnmarshalTypeError
	if errors.As(err, &kind) {
		wants := map[reflect.Kind]string{reflect.String: "a string", reflect.Bool: "true or false", reflect.Slice: "a list", reflect.Struct: "an object"}[kind.Type.Kind()]
		if wants == "" {
			wants = "a whole number in range"
		}
		what := "it"
		if kind.Field != "" {
			what = kind.Field
		}
		return fmt.Sprintf("%s must be %s, not %s", what, wants, kind.Value)
	}
	return strings.TrimPrefix(err.Error(), "json: ")
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// deref is a message that may be absent.
func deref(message *string) string {
	if message == nil {
		return ""
	}
	return *message
}
