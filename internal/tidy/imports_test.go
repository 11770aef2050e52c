// SPDX-License-Identifier: Apache-2.0

package tidy

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
)

// row says what the package, or each package that matches, may import of ours. Patterns are paths from the module's root; a
// trailing /... also means what lies below. "-" before a pattern takes back; the last pattern that matches decides.
type row struct {
	pkg string
	may []string
}

// anybody may be imported by every package.
const anybody = "internal/invariant"

// doubles are chosen in cmd, internal/cli and tests only: drivers, the metadata stores, conformance suites, test environments.
var (
	drivers  = []string{"metadata/etcd/...", "metadata/memory/...", "tiering/objstore/*"}
	testOnly = []string{"metadata/metadatatest", "tiering/objstore/objstoretest", "internal/golden", "internal/memnet", "internal/sim", "internal/testenv"}
)

// table is "Who may import whom" of the architecture, with metadata/config added where settings are read. A package without a
// row is a finding. More specific rows come first.
var table = []row{
	{"record", nil},
	{"metadata", []string{"record", "metadata/config"}},
	{"metadata/config", nil},
	{"metadata/controller", []string{"metadata", "record"}},
	{"metadata/...", []string{"metadata", "metadata/config", "metadata/etcd/...", "record"}}, // etcd, memory, metadatatest
	{"tiering/objstore", nil},
	{"tiering/objstore/*", []string{"tiering/objstore"}}, // drivers, objstoretest
	{"tiering/segment", []string{"record"}},
	{"tiering/manifest", []string{"record", "tiering/segment"}},
	{"tiering", []string{"record", "metadata", "metadata/config", "tiering/objstore", "tiering/segment", "tiering/manifest"}},
	{"tiering/reconcile", []string{"record", "metadata", "tiering/objstore", "tiering/segment", "tiering/manifest"}},
	{"compactor", []string{"record", "metadata", "tiering/objstore", "tiering/segment", "tiering/manifest"}},
	{"broker/isr", []string{"record", "metadata"}},
	{"broker/hotlog", []string{"record"}},
	// segment: what a replica carries into a segment besides its batches (segment.Extra) is what it must be able to start from.
	{"broker", []string{"record", "metadata", "metadata/config", "tiering", "tiering/segment", "broker/isr", "broker/hotlog"}},
	{"gateway/group/stored", nil},
	{"gateway/group", []string{"record", "gateway/group/stored"}},
	{"gateway/group/consumer", []string{"record", "gateway/group", "gateway/group/stored"}},
	{"gateway/txn", []string{"record"}},
	{"gateway/auth", []string{"metadata"}},
	{"gateway/quota", []string{"metadata"}},
	{"gateway", []string{"record", "metadata", "metadata/config", "metadata/controller", "broker", "gateway/auth", "gateway/group", "gateway/group/consumer", "gateway/group/stored", "gateway/quota", "gateway/txn"}},
	{"ops", slices.Concat([]string{"...", "-internal/...", "-cmd/..."}, except(drivers), except(testOnly))},
	{"internal/cli", slices.Concat([]string{"...", "-cmd/..."}, except(testOnly))},
	{"internal/invariant", nil},
	{"internal/golden", nil},
	{"internal/memnet", nil},
	{"internal/testenv", nil},
	{"internal/tidy", nil},
	{"internal/sim", []string{"...", "-cmd/...", "-internal/cli"}},
	{"cmd/...", slices.Concat([]string{"..."}, except(testOnly))},
	{"integration/...", []string{"...", "-internal/...", "-cmd/..."}},
}

func except(patterns []string) []string {
	var out []string
	for _, p := range patterns {
		out = append(out, "-"+p)
	}
	return out
}

// matches tells whether a package's path fits a pattern.
func matches(pattern, pkg string) bool {
	if pattern == "..." {
		return true
	}
	if base, ok := strings.CutSuffix(pattern, "/..."); ok {
		return pkg == base || strings.HasPrefix(pkg, base+"/")
	}
	ok, err := path.Match(pattern, pkg)
	return ok && err == nil
}

// allowed tells whether the last pattern that fits pkg lets it in.
func allowed(patterns []string, pkg string) bool {
	for _, p := range slices.Backward(patterns) {
		if taken, ok := strings.CutPrefix(p, "-"); ok && matches(taken, pkg) {
			return false
		} else if !ok && matches(p, pkg) {
			return true
		}
	}
	return false
}

func rowOf(rows []row, pkg string) (row, bool) {
	i := slices.IndexFunc(rows, func(r row) bool { return matches(r.pkg, pkg) })
	if i < 0 {
		return row{}, false
	}
	return rows[i], true
}

// testMay tells whether a test of the package may import another one: itself, what it may import, what those may, and doubles.
// A test that reaches for a package above its own tests at the wrong height.
func testMay(rows []row, pkg, imported string, seen map[string]bool) bool {
	if allowed(slices.Concat(drivers, testOnly), imported) || imported == pkg {
		return true
	}
	r, ok := rowOf(rows, pkg)
	if !ok || seen[pkg] {
		return false
	}
	seen[pkg] = true
	if allowed(r.may, imported) {
		return true
	}
	return slices.ContainsFunc(r.may, func(next string) bool { return testMay(rows, next, imported, seen) })
}

// testsMay is what the tests of a package import beyond that: the nodes that tests of the gateway wire make the cluster that is reconciled.
var testsMay = map[string][]string{"gateway": {"tiering/reconcile"}}

func checkImports(t *tree, rows []row) []string {
	var out []string
	for dir, files := range t.packages() {
		r, ok := rowOf(rows, dir)
		if !ok {
			out = append(out, fmt.Sprintf("%s: the package has no row in the import table", dir))
			continue
		}
		for _, f := range files {
			own, _ := f.imports(t.module)
			for _, imported := range own {
				switch {
				case imported == anybody, allowed(r.may, imported):
				case f.test && (testMay(rows, dir, imported, map[string]bool{}) || allowed(testsMay[dir], imported)):
				default:
					out = append(out, fmt.Sprintf("%s: %s may not import %s", f.path, dir, imported))
				}
			}
		}
	}
	return out
}

func TestImports(t *testing.T) { report(t, checkImports(repository(t), table)) }

func importing(paths ...string) string {
	var b strings.Builder
	for _, p := range paths {
		fmt.Fprintf(&b, "import _ %q\n", p)
	}
	return b.String()
}

func TestImportsCanFail(t *testing.T) {
	ours := func(paths ...string) string {
		for i := range paths {
			paths[i] = "example.org/m/" + paths[i]
		}
		return importing(paths...)
	}
	got := small(t, map[string]string{
		"record/a.go":                   ours("metadata"),
		"record/a_test.go":              ours("record", "broker"),
		"metadata/a.go":                 ours("record", "metadata/config", "internal/invariant", "metadata/memory"),
		"metadata/config/a.go":          ours("record"),
		"metadata/memory/a_test.go":     ours("metadata", "metadata/metadatatest"),
		"metadata/etcd/embed/a.go":      ours("tiering"),
		"tiering/objstore/aws/a.go":     ours("tiering/objstore", "record"),
		"compactor/a.go":                ours("tiering/segment", "tiering"),
		"broker/a.go":                   ours("broker/hotlog", "gateway"),
		"broker/a_test.go":              ours("tiering/manifest", "metadata/memory", "tiering/objstore/mem"),
		"gateway/group/a.go":            ours("metadata"),
		"gateway/a.go":                  ours("broker", "tiering"),
		"ops/a.go":                      ours("broker/hotlog", "internal/cli", "tiering/objstore/aws", "internal/sim"),
		"internal/cli/a.go":             ours("metadata/etcd", "tiering/objstore/aws", "internal/memnet", "cmd/varve"),
		"internal/sim/a.go":             ours("internal/memnet", "metadata/memory", "gateway", "internal/cli"),
		"integration/a_test.go":         ours("internal/testenv", "record", "internal/cli"),
		"cmd/varve/a.go":                ours("internal/cli", "internal/sim"),
		"util/a.go":                     "",
		"internal/invariant/testdata/a": "",
	})
	expect(t, checkImports(got, table),
		"record may not import metadata", "record may not import broker", "metadata may not import metadata/memory",
		"metadata/config may not import record", "metadata/etcd/embed may not import tiering",
		"tiering/objstore/aws may not import record", "compactor may not import tiering", "broker may not import gateway",
		"gateway/group may not import metadata", "gateway may not import tiering", "ops may not import internal/cli",
		"ops may not import tiering/objstore/aws", "ops may not import internal/sim", "internal/cli may not import internal/memnet",
		"internal/cli may not import cmd/varve", "internal/sim may not import internal/cli", "integration may not import internal/cli",
		"cmd/varve may not import internal/sim", "util: the package has no row")
}
