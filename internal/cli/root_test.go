// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// runCLI runs one command line as a process would and returns what it printed.
func runCLI(t *testing.T, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = Run(context.Background(), args, streams{in: strings.NewReader(stdin), out: &out, err: &errs})
	return code, out.String(), errs.String()
}

// nowhere is an address on which nothing listens.
func nowhere(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// TestUsage: wrong usage ends with 2 and says what is wrong, before anything is connected to (L2). Each row would be code 1
// instead if it got as far as the address, on which nothing listens.
func TestUsage(t *testing.T) {
	t.Setenv(envBootstrap, nowhere(t))
	for _, row := range [][2]string{ // command line, what the message must name
		{"", "needs a command"},
		{"nonsense", `"nonsense"`},
		{"topic", "create, delete, describe, list"},
		{"topic nonsense", `"nonsense"`},
		{"topic list extra", `"extra"`},
		{"topic list --nonsense", "--nonsense"},
		{"topic list --output xml", "table or json"},
		{"topic list --timeout 0s", "--timeout"},
		{"topic list --bootstrap a:1,,b:2", "empty address"},
		{"topic list --tls-ca /no/such/file", "--tls-ca"},
		{"topic list --tls-cert x", "--tls-key"},
		{"topic list --sasl-user me", "--sasl-mechanism"},
		{"topic list --sasl-mechanism PLAIN", "--sasl-user"},
		{"topic list --sasl-mechanism PLAIN --sasl-user me", envSASLPassword},
		{"topic create", "TOPIC"},
		{"topic create a --partitions 0", "--partitions"},
		{"topic create a --replication-factor -3", "--replication-factor"},
		{"topic create a --config retention.ms", "KEY=VALUE"},
		{"topic create a --config a=1 --config a=2", "twice"},
		{"topic alter a", "nothing to alter"},
		{"topic alter a --config x=1 --delete-config x", "both"},
		{"topic delete", "TOPIC"},
		{"config describe", "exactly one of"},
		{"config describe --topic a --group b", "exactly one of"},
		{"config describe --broker x", "node id"},
		{"config set --topic a", "KEY=VALUE"},
		{"config set --topic a x", "KEY=VALUE"},
		{"config unset --topic a", "KEY"},
		{"produce", "TOPIC"},
		{"produce a --compression brotli", "brotli"},
		{"produce a --acks 2", "--acks"},
		{"produce a --partition -2", "--partition"},
		{"produce a --header x", "--header"},
		{"produce a --json --length-delimited", "exclude"},
		{"produce a --json --key-separator :", "lines only"},
		{"produce a --length-delimited --time-regex x --time-layout unix", "lines and JSON"},
		{"produce a --time-regex x", "--time-layout"},
		{"produce a --time-layout unix", "--time-regex"},
		{"produce a --time-regex ( --time-layout unix", "--time-regex"},
		{"produce a --time-regex x --time-layout unix --time-zone Mars", "--time-zone"},
		{"produce a --time-regex x --time-layout unix --time-missing ignore", "--time-missing"},
		{"produce a --transactional-id x --acks 1", "--acks all"},
		{"produce a --transactional-id=", "--transactional-id is empty"},
		{"txn list --state Open", "PrepareCommit"},
		{"group list --state Foo", "PreparingRebalance"},
		{"group list --type foo", "classic, consumer"},
		{"segment list a:x", "TOPIC:PARTITION"},
		{"segment list a:1 --partition 1", "--partition"},
		{"produce a --file /no/such/file", "--file"},
		{"consume", "TOPIC"},
		{"consume a --from sometime", "--from"},
		{"consume a --to sometime", "--to"},
		{"consume a --to earliest", "earliest"},
		{"consume a --follow --to 5", "exclude"},
		{"consume a --count -1", "--count"},
		{"consume a --group g --partition 1", "--partition"},
		{"consume a --group g --from 5", "--group"},
		{"consume a --format %z", "%z"},
		{"consume a --format x --output json", "exclude"},
		{"consume a --isolation dirty", "read_committed"},
		{"group", "delete, describe, list, reset"},
		{"group list extra", `"extra"`},
		{"group describe", "GROUP"},
		{"group delete", "GROUP"},
		{"group reset g", "--to"},
		{"group reset g --to sometime", "--to"},
		{"group reset g --to shift:x", "shift"},
		{"group reset g --to latest --partition 1", "--topic"},
		{"offsets", "TOPIC"},
		{"offsets a --at sometime", "--at"},
		{"offsets a --at 1960-01-01T00:00:00Z", "1970"},
		{"segment list", "TOPIC"},
		{"segment list a --http http://", "--http"},
		{"node list --http h:1,,h:2", `--http "" is not HOST:PORT`},
		{"node list --http h:1,h:2:3", `--http "h:2:3" is not HOST:PORT`},
		{"node list --http ftp://h:1", "--http"},
		{"segment dump", "URL|FILE"},
		{"segment dump x --summary --records", "exclude"},
		{"segment dump ftp://x/y", "ftp"},
		{"segment dump s3://bucket", "key"},
		{"cluster describe x", `"x"`},
		{"cluster upgrade --to -1", "--to"},
		{"node", "drain, list, undrain"},
		{"node drain", "NODE"},
		{"node drain x", "node id"},
		{"node drain 1 --wait -1s", "--wait"},
		{"node undrain -- -1", "node id"},
		{"elect a:x", "TOPIC:PARTITION"},
		{"elect --unclean", "--unclean"},
		{"restore", "--reconcile"},
		{"restore --reconcile", "--etcd"},
		{"restore --reconcile --etcd http://h:1", "--bucket"},
		{"restore --write-report f", "--data"},
		{"restore --write-report f --data d --reconcile", "--reconcile"},
		{"fsck --help", `no command "fsck"`},
		{"cluster cost --help", `no command "cost"`},
		{"topic create a --partitions x", `invalid argument "x"`},
		{"produce a --time-zone UTC", "--time-regex"},
		{"produce a --time-missing now", "--time-regex"},
		{"config describe --topic a --topic b", "twice"},
		{"reassign", "apply, cancel, plan, status"},
		{"reassign plan", "TOPIC"},
		{"reassign plan a", "nothing to plan"},
		{"reassign plan a --replication-factor -1", "--replication-factor"},
		{"reassign apply", "file"},
		{"reassign apply --file /no/such/file", "--file"},
		{"reassign apply --file -", "not a reassignment"},
		{"reassign status :1", "TOPIC:PARTITION"},
		{"reassign cancel", "--all"},
		{"reassign cancel a --all", "--all"},
		{"bench sleep", `"sleep"`},
		{"bench --record-bytes 1", "--record-bytes"},
		{"bench --duration 0s", "--duration"},
		{"bench --acks 0", "--acks 0"},
		{"completion powershell", "bash, zsh and fish"},
		{"version x", `"x"`},
	} {
		code, out, errs := runCLI(t, "", strings.Fields(row[0])...)
		if code != exitUsage || !strings.Contains(errs, row[1]) || out != "" {
			t.Errorf("varve %s: code %d, out %q, err %q; want code 2 and %q", row[0], code, out, errs, row[1])
		}
		if strings.Contains(errs, "strconv") {
			t.Errorf("varve %s: %q", row[0], errs)
		}
		if lines := strings.Count(errs, "\n"); lines != 1 || !strings.Contains(errs, "--help") { // with where the usage is told
			t.Errorf("varve %s: %d lines: %q", row[0], lines, errs)
		}
	}
}

// TestUnreachable: what cannot reach a broker or node fails with 1 and one line that names the address and says what to do.
func TestUnreachable(t *testing.T) {
	at := nowhere(t)
	for _, row := range []string{
		"topic list", "topic create a", "topic describe a", "topic alter a --partitions 2", "topic delete a", "config describe --topic a",
		"config set --topic a x=y", "produce a", "consume a", "consume a --group g", "offsets a", "cluster describe", "bench",
		"elect", "elect a:0", "reassign plan a --replication-factor 2", "reassign status", "reassign cancel --all",
	} {
		code, out, errs := runCLI(t, "", append(strings.Fields(row), "--bootstrap", at)...)
		if code != exitFailed || !strings.Contains(errs, at) || !strings.Contains(errs, "--bootstrap") || strings.Count(errs, "\n") != 1 || out != "" {
			t.Errorf("varve %s: code %d, out %q, err %q", row, code, out, errs)
		}
	}
	for _, row := range []string{"segment list a", "cluster upgrade", "node list", "node drain 1", "node undrain 1"} {
		code, out, errs := runCLI(t, "", append(strings.Fields(row), "--http", at)...)
		if code != exitFailed || !strings.Contains(errs, at) || !strings.Contains(errs, "--http") || strings.Count(errs, "\n") != 1 || out != "" {
			t.Errorf("varve %s: code %d, out %q, err %q", row, code, out, errs)
		}
	}
}

// TestChoicesAreSpelledFreely: what is one of the names, in whatever case, gets as far as the broker.
func TestChoicesAreSpelledFreely(t *testing.T) {
	at := nowhere(t)
	for _, row := range []string{"txn list --state ongoing", "group list --state stable,EMPTY", "group list --type Consumer"} {
		if code, _, errs := runCLI(t, "", append(strings.Fields(row), "--bootstrap", at)...); code != exitFailed {
			t.Errorf("varve %s: %d %q", row, code, errs)
		}
	}
	if got, err := choices("--state", []string{"ongoing", "preparecommit"}, txnStates); err != nil || strings.Join(got, ",") != "Ongoing,PrepareCommit" {
		t.Errorf("%v, %v", got, err)
	}
	for name, want := range map[string]string{"retention.m": "retention.ms", "nonsense": "", "clenup.policy": "cleanup.policy"} {
		if got := nearest(name, []string{"cleanup.policy", "retention.ms", "segment.ms"}); got != want {
			t.Errorf("nearest to %s: %q", name, got)
		}
	}
}

func TestEveryCommandHasHelp(t *testing.T) {
	s := streams{in: strings.NewReader(""), out: new(bytes.Buffer), err: new(bytes.Buffer)}
	var walk func(path []string)
	walk = func(path []string) {
		cmd, _, err := newRoot(&s).Find(path)
		if err != nil {
			t.Fatal(err)
		}
		code, out, errs := runCLI(t, "", append(path, "--help")...)
		if code != exitDone || !strings.Contains(out, "Usage:") || errs != "" || cmd.Short == "" {
			t.Errorf("%v --help: code %d, err %q, short %q", path, code, errs, cmd.Short)
		}
		for _, rough := range []string{"[])", "int32Slice", "stringArray"} { // what the flag library says of its own
			if strings.Contains(out, rough) {
				t.Errorf("%v --help has %q", path, rough)
			}
		}
		for _, sub := range cmd.Commands() {
			walk(append(path[:len(path):len(path)], sub.Name()))
		}
	}
	walk(nil)
}

// TestHelpShowsOneDefault: a flag has one, also when it comes from the environment.
func TestHelpShowsOneDefault(t *testing.T) {
	for _, name := range []string{envHTTP, envHTTPToken, envBootstrap} {
		t.Setenv(name, "from-"+name)
	}
	for _, command := range []string{"node list", "node drain", "cluster describe", "cluster upgrade", "why", "segment list", "topic list"} {
		_, out, _ := runCLI(t, "", append(strings.Fields(command), "--help")...)
		seen := 0
		for line := range strings.Lines(out) {
			seen += strings.Count(line, `(default "from-`)
			if strings.Count(line, "default") > 1 {
				t.Errorf("%s --help has two defaults: %s", command, line)
			}
		}
		if seen == 0 {
			t.Errorf("%s --help shows no default from the environment", command)
		}
	}
}

// TestServeHelp: it names every kind of bucket, and says what a role is good for.
func TestServeHelp(t *testing.T) {
	_, out, _ := runCLI(t, "", "serve", "--help")
	for scheme := range drivers {
		if !strings.Contains(out, string(scheme)+"://") {
			t.Errorf("--bucket does not name %s://", scheme)
		}
	}
	if !strings.Contains(out, "compactor (does nothing yet") {
		t.Error("--roles does not say that the compactor does nothing yet")
	}
}

func TestVersionAndCompletion(t *testing.T) {
	if code, out, _ := runCLI(t, "", "version"); code != 0 || !strings.HasPrefix(out, "varve "+Version) {
		t.Errorf("%d %q", code, out)
	}
	_, version, _ := runCLI(t, "", "version")
	if code, out, errs := runCLI(t, "", "--version"); code != 0 || out != version || errs != "" {
		t.Errorf("--version: %d %q %q, want %q", code, out, errs, version)
	}
	offersEmbed := regexp.MustCompile(`\bor embed\b`)
	for command, want := range map[string]bool{"serve": true, "restore": false} {
		if _, out, _ := runCLI(t, "", command, "--help"); offersEmbed.MatchString(out) != want {
			t.Errorf("%s offers --etcd embed: %t, want %t", command, !want, want)
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if code, out, errs := runCLI(t, "", "completion", shell); code != 0 || !strings.Contains(out, "varve") || errs != "" {
			t.Errorf("%s: %d, %d bytes, %q", shell, code, len(out), errs)
		}
	}
}

func TestPasswordComesFromFileOrEnvironment(t *testing.T) {
	path := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(path, []byte("from file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(envSASLPassword, "from env")
	for file, want := range map[string]string{path: "from file", "": "from env"} {
		c := &connection{saslPasswordFile: file}
		if got, err := c.password(); err != nil || got != want {
			t.Errorf("%q: %q, %v", file, got, err)
		}
	}
}
