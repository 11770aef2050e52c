// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func parsed(t *testing.T, text string) *report {
	t.Helper()
	r, err := parseReport(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestPage(t *testing.T) {
	kafka := "version\t1.2\npass\ta\npass\tb\npass\tgroup-share\npass\ttransactions\nfail\told\tclosed\nnone\tshare\tno call\nits own talk\n"
	varve := "version\t1.2\npass\ta\nnone\tgroup-share\tskips itself\nfail\ttransactions\ttimed | out\nfail\told\tbusy\npass\told\nnone\tshare\tno call\nbroken\tthe time box of 1m was over\n"
	both := compare(client{"kcat", "1.7.1", "kcat"}, parsed(t, kafka), parsed(t, varve))
	gone := compare(client{"rskafka", "0.6", "rskafka"}, parsed(t, "broken\tno cargo"), parsed(t, "broken\tno cargo"))
	var page strings.Builder
	if got := render(&page, "Conditions.", []*comparison{both, gone}); got != 2 {
		t.Errorf("%d differences without a reason, want 2: b, which has no result, and transactions", got)
	}
	for _, want := range []string{
		"\nConditions.\n",
		"| kcat | 1.2 | 4 | 1 | b, group-share, transactions |",
		"| rskafka | 0.6 | – | – | not to be had: `no cargo` |",
		"| all | | 4 | 1 | |",
		"| kcat-1.7.1 | b | **not explained yet** | `no result: the time box of 1m was over` |",
		"| kcat-1.7.1 | transactions | **not explained yet** | `timed \\| out` |",
		"| kcat-1.7.1 | group-share | " + noShareGroups + " | `skips itself` |",
		"| kcat-1.7.1 | old | pass | `closed` |",
		"- kcat-1.7.1: share\n",
		"- kcat-1.7.1: a\n",
	} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the page has no %q:\n%s", want, page.String())
		}
	}
}

// A client that cannot be installed, one that hangs and one that fails are results; the run goes on.
func TestClientsThatBreak(t *testing.T) {
	dir := t.TempDir()
	script := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		folder, install, run, want string
		box                        time.Duration
	}{
		{"refused", "echo not served >&2; exit 1", "exit 0", "broken\tinstall.sh: exit status 1: not served", time.Minute},
		{"hangs", "exit 0", "sleep 1000", "broken\tthe time box of 2s was over", 2 * time.Second},
		{"ends", "exit 0", `printf 'pass\t%s on %s\n' "$1-$2" "$CARD_BOOTSTRAP"; echo oh >&2; exit 3`, "pass\tends-1 on there\n\nbroken\trun.sh: exit status 3: oh", time.Minute},
	} {
		script(tc.folder+"/install.sh", tc.install)
		script(tc.folder+"/run.sh", tc.run)
		c := card{sources: dir, results: filepath.Join(dir, "results"), cache: dir, box: tc.box, systems: []system{{"kafka", "there"}, {"varve", ""}}}
		cl := client{tc.folder, "1", tc.folder}
		if err := c.test(t.Context(), cl); err != nil {
			t.Errorf("%s: %v", tc.folder, err)
		}
		got, err := os.ReadFile(c.file(cl, "kafka"))
		if err != nil || strings.TrimSpace(string(got)) != tc.want {
			t.Errorf("%s: %q, %v; want %q", tc.folder, got, err, tc.want)
		}
		if _, err := os.Stat(c.file(cl, "varve")); err == nil {
			t.Errorf("%s: ran against a system without an address", tc.folder)
		}
	}
}

func TestExplain(t *testing.T) {
	suite := client{name: "franz-go-tests", version: "v1.22.3"}
	for name, want := range map[string]string{"TestConsumeShare/sticky/848": noShareGroups, "TestShareGroupETL": noShareGroups, "TestTxnEtl/range/848": ""} {
		if got, known := explain(suite, name); got != want || known != (want != "") {
			t.Errorf("%s: %q, %v; want %q", name, got, known, want)
		}
	}
}

// Every client of the table is in its folder, with programs that can be started.
func TestClientsAreThere(t *testing.T) {
	for _, c := range clients {
		for _, program := range []string{"install.sh", "run.sh"} {
			info, err := os.Stat(filepath.Join(c.folder, program))
			if err != nil || info.Mode()&0o111 == 0 {
				t.Errorf("%s: %s cannot be started: %v", c.id(), program, err)
			}
		}
	}
}

// The subtests of franz-go's tests are cases, also one whose name begins with that of another; a test without an end is a failure.
func TestFranzSuiteCases(t *testing.T) {
	dir := t.TempDir()
	suite := `#!/bin/sh
case $* in
*TestETL*) cat <<END
=== RUN   TestETL
--- FAIL: TestETL (2.00s)
    --- PASS: TestETL/range/848 (1.00s)
    --- FAIL: TestETL/range (1.00s)
        a_test.go:7: lost a record
    --- PASS: TestETL/deep (1.00s)
        --- SKIP: TestETL/deep/one (0.00s)
END
	;;
*TestPlain*) echo "--- PASS: TestPlain (0.10s)" ;;
*) echo "panic: test timed out"; exit 2 ;;
esac
`
	if err := os.WriteFile(filepath.Join(dir, "kgo.test"), []byte(suite), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "franzsuite/run.sh", "franz-go-tests", "v1")
	cmd.Env = append(os.Environ(), "CARD_DIR="+dir, "CARD_BOOTSTRAP=there", "CARD_REPLICAS=3", "CARD_CASES=TestETL TestPlain TestHangs")
	got, err := cmd.Output()
	want := "version\tv1\nnone\tTestETL/deep/one\tskips itself\nfail\tTestETL/range\t a_test.go:7: lost a record\npass\tTestETL/range/848\npass\tTestPlain\n" +
		"fail\tTestHangs\tpanic: test timed out\n"
	if err != nil || string(got) != want {
		t.Errorf("%v\n got %q\nwant %q", err, got, want)
	}
}
