// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func TestParseListeners(t *testing.T) {
	for _, tc := range []struct {
		name string
		in   listenerOptions
		want string // part of the error; "" for none
	}{
		{"plain", listenerOptions{listen: "PLAINTEXT://127.0.0.1:9092", interBroker: "INTERNAL"}, ""},
		{"advertised", listenerOptions{listen: "PLAINTEXT://:9092", advertise: "PLAINTEXT://kafka.example:9092"}, ""},
		{"internal may be a wildcard", listenerOptions{listen: "PLAINTEXT://127.0.0.1:9092,INTERNAL://:9094", interBroker: "INTERNAL"}, ""},
		{"wildcard", listenerOptions{listen: "PLAINTEXT://:9092"}, "set --advertised-listeners PLAINTEXT://HOST:9092"},
		{"wildcard advertised", listenerOptions{listen: "PLAINTEXT://:9092", advertise: "PLAINTEXT://0.0.0.0:9092"}, "wildcard address"},
		{"IPv6 wildcard", listenerOptions{listen: "PLAINTEXT://[::]:9092"}, "wildcard address"},
		{"no name", listenerOptions{listen: "127.0.0.1:9092"}, "is not NAME://HOST:PORT"},
		{"bad port", listenerOptions{listen: "PLAINTEXT://127.0.0.1:90920"}, "0 to 65535"},
		{"twice", listenerOptions{listen: "PLAINTEXT://127.0.0.1:1,plaintext://127.0.0.1:2"}, "twice"},
		{"advertised stranger", listenerOptions{listen: "PLAINTEXT://127.0.0.1:1", advertise: "OTHER://h:1"}, "which --listeners does not have"},
		{"TLS", listenerOptions{listen: "SECURE://127.0.0.1:1", protocols: "SECURE:SSL"}, "serves PLAINTEXT only"},
		{"no protocol", listenerOptions{listen: "MINE://127.0.0.1:1"}, "add MINE:PLAINTEXT"},
		{"none", listenerOptions{}, "--listeners is empty"},
	} {
		_, err := parseListeners(tc.in)
		switch {
		case tc.want == "" && err != nil:
			t.Errorf("%s: %v", tc.name, err)
		case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want) || !errors.Is(err, errUsage)):
			t.Errorf("%s: error %v, want wrong usage with %q", tc.name, err, tc.want)
		}
	}
}

func TestOptionsPrecedence(t *testing.T) {
	file := filepath.Join(t.TempDir(), "varve.yaml")
	if err := os.WriteFile(file, []byte("node-id: 1\ncluster: from-file\nrack: r1\ndata: [a, b]\nset:\n  log.retention.ms: 5\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"VARVE_CLUSTER": "from-env", "VARVE_NODE_ID": "2"}
	var o nodeOptions
	f := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	o.register(f)
	if err := f.Parse([]string{"--config", file, "--node-id", "3"}); err != nil {
		t.Fatal(err)
	}
	if err := o.fill(f, func(k string) (string, bool) { v, ok := env[k]; return v, ok }); err != nil {
		t.Fatal(err)
	}
	if o.nodeID != 3 || o.cluster != "from-env" || o.rack != "r1" || strings.Join(o.data, ",") != "a,b" || o.set[0] != "log.retention.ms=5" {
		t.Fatalf("flag over environment over file: %+v", o)
	}
}

func TestOptionsRefuseUnknownKeys(t *testing.T) {
	file := filepath.Join(t.TempDir(), "varve.yaml")
	if err := os.WriteFile(file, []byte("nodeid: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var o nodeOptions
	f := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	o.register(f)
	if err := f.Parse([]string{"--config", file}); err != nil {
		t.Fatal(err)
	}
	err := o.fill(f, func(string) (string, bool) { return "", false })
	if err == nil || !strings.Contains(err.Error(), `unknown key "nodeid"`) {
		t.Fatalf("error %v, want one that names the key", err)
	}
}
