// SPDX-License-Identifier: Apache-2.0

package tidy

import (
	"fmt"
	"go/ast"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// library is a dependency that only some may use.
type library struct {
	prefix string
	// files are patterns of packages, or of files when they end in .go.
	files []string
	// tests tells that tests anywhere may use it.
	tests bool
	why   string
}

var libraries = []library{
	{"github.com/cockroachdb/pebble", []string{"broker/hotlog"}, false, "the hot log is the only importer of Pebble"},
	{"github.com/twmb/franz-go/pkg/kmsg", []string{"gateway", "internal/cli", "internal/sim", "integration/...", "broker/follow*.go", "broker/ask.go"}, true,
		"the wire protocol ends in the gateway"},
	{"github.com/aws/", []string{"tiering/objstore/aws"}, false, "a store's SDK stays in its driver"},
	{"github.com/minio/minio-go", []string{"tiering/objstore/minio"}, false, "a store's SDK stays in its driver"},
}

func (l *library) lets(f *goFile) bool {
	if f.test && l.tests {
		return true
	}
	return slices.ContainsFunc(l.files, func(pattern string) bool {
		if path.Ext(pattern) == ".go" {
			return matches(pattern, f.path)
		}
		return matches(pattern, f.dir)
	})
}

func checkLibraries(t *tree) []string {
	var out []string
	for _, f := range t.files {
		_, foreign := f.imports(t.module)
		for _, imported := range foreign {
			for _, l := range libraries {
				if strings.HasPrefix(imported, l.prefix) && !l.lets(f) {
					out = append(out, fmt.Sprintf("%s: imports %s: %s", f.path, imported, l.why))
				}
			}
		}
	}
	return out
}

func TestLibraries(t *testing.T) { report(t, checkLibraries(repository(t))) }

func TestLibrariesCanFail(t *testing.T) {
	pebble, kmsg := "github.com/cockroachdb/pebble/v2", "github.com/twmb/franz-go/pkg/kmsg"
	aws, minio := "github.com/aws/aws-sdk-go-v2/service/s3", "github.com/minio/minio-go/v7"
	got := small(t, map[string]string{
		"broker/hotlog/a.go": importing(pebble, pebble+"/vfs"), "broker/a.go": importing(pebble + "/vfs"), "broker/a_test.go": importing(pebble),
		"gateway/a.go": importing(kmsg), "broker/follower.go": importing(kmsg), "broker/append.go": importing(kmsg),
		"record/a_test.go": importing(kmsg), "gateway/group/a.go": importing(kmsg),
		"tiering/objstore/aws/a.go": importing(aws, minio), "tiering/objstore/minio/a.go": importing(minio), "tiering/a.go": importing(aws),
	})
	expect(t, checkLibraries(got), "broker/a.go: imports "+pebble+"/vfs", "broker/a_test.go: imports "+pebble, "broker/append.go: imports "+kmsg,
		"gateway/group/a.go: imports "+kmsg, "tiering/objstore/aws/a.go: imports "+minio, "tiering/a.go: imports "+aws)
}

// globals are what reaches Prometheus' global registry, by import path. Everything else gets a Registerer.
var globals = map[string][]string{
	"github.com/prometheus/client_golang/prometheus":          {"MustRegister", "Register", "Unregister", "DefaultRegisterer", "DefaultGatherer"},
	"github.com/prometheus/client_golang/prometheus/promhttp": {"Handler"},
	"github.com/prometheus/client_golang/prometheus/promauto": {
		"NewCounter", "NewCounterVec", "NewCounterFunc", "NewGauge", "NewGaugeVec", "NewGaugeFunc", "NewHistogram", "NewHistogramVec",
		"NewSummary", "NewSummaryVec", "NewUntypedFunc",
	},
}

func checkGlobalRegistry(t *tree) []string {
	var out []string
	for _, f := range t.files {
		names := map[string][]string{} // what the file calls the package → what it must not use of it
		for _, spec := range f.ast.Imports {
			p, err := strconv.Unquote(spec.Path.Value)
			if err != nil || globals[p] == nil {
				continue
			}
			name := path.Base(p)
			if spec.Name != nil {
				name = spec.Name.Name
			}
			names[name] = globals[p]
		}
		if len(names) == 0 {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if x, ok := sel.X.(*ast.Ident); ok && slices.Contains(names[x.Name], sel.Sel.Name) {
				out = append(out, fmt.Sprintf("%s: %s.%s uses the global metrics registry; take a Registerer", t.fset.Position(sel.Pos()), x.Name, sel.Sel.Name))
			}
			return true
		})
	}
	return out
}

func TestGlobalRegistry(t *testing.T) { report(t, checkGlobalRegistry(repository(t))) }

func TestGlobalRegistryCanFail(t *testing.T) {
	got := small(t, map[string]string{
		"a/a.go": "import \"github.com/prometheus/client_golang/prometheus\"\nfunc f(r prometheus.Registerer) { r.MustRegister(); prometheus.MustRegister() }",
		"a/b.go": "import prom \"github.com/prometheus/client_golang/prometheus\"\nvar r = prom.DefaultRegisterer",
		"a/c.go": "import \"github.com/prometheus/client_golang/prometheus/promhttp\"\nvar h, i = promhttp.Handler(), promhttp.HandlerFor(nil)",
		"a/d.go": "import \"github.com/prometheus/client_golang/prometheus/promauto\"\nvar c, d = promauto.NewGauge(), promauto.With(nil).NewGauge()",
		"a/e.go": "import prometheus \"example.org/other\"\nvar c = prometheus.MustRegister()",
	})
	expect(t, checkGlobalRegistry(got), "a/a.go:6:53: prometheus.MustRegister", "prom.DefaultRegisterer", "promhttp.Handler uses", "promauto.NewGauge")
}
