// SPDX-License-Identifier: Apache-2.0

package tidy

import (
	"fmt"
	"path"
	"regexp"
	"strings"
	"testing"
)

var (
	fence      = regexp.MustCompile("(?ms)^ *(```|~~~).*?^ *(```|~~~) *$")
	inlineCode = regexp.MustCompile("`[^`\n]*`")
	inlineLink = regexp.MustCompile(`\]\(\s*<?([^)\s>]+)>?(?:\s+["'(][^)]*)?\)`)
	definition = regexp.MustCompile(`(?m)^ {0,3}\[[^\]]+\]:\s*<?([^\s>]+)`)
	scheme     = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9+.-]*:`)
)

// checkLinks demands that relative links in Markdown files lead to something in the tree.
func checkLinks(t *tree) []string {
	var out []string
	for name, text := range t.texts {
		if path.Ext(name) != ".md" {
			continue
		}
		text := inlineCode.ReplaceAllString(fence.ReplaceAllString(string(text), ""), "")
		for _, pattern := range []*regexp.Regexp{inlineLink, definition} {
			for _, m := range pattern.FindAllStringSubmatch(text, -1) {
				target, _, _ := strings.Cut(m[1], "#")
				if target == "" || scheme.MatchString(target) {
					continue
				}
				to := path.Join(path.Dir(name), target)
				if rooted, ok := strings.CutPrefix(target, "/"); ok {
					to = path.Clean(rooted)
				}
				if !t.exists(to) {
					out = append(out, fmt.Sprintf("%s: the link to %s leads nowhere", name, m[1]))
				}
			}
		}
	}
	return out
}

func TestLinks(t *testing.T) { report(t, checkLinks(repository(t))) }

func TestLinksCanFail(t *testing.T) {
	got := small(t, map[string]string{
		"docs/a.md": "[x](b.md#part) [y](../docs/b.md \"title\") [u](https://example.org/no.md) [s](#here) [d](../docs) [r](/docs/b.md)\n" +
			"`[code](none.md)`\n```\n[fenced](none.md)\n```\n[gone](gone.md) [up](../../out.md) ![pic](<pic.png>)\n\n[ref]: missing.md\n",
		"docs/b.md": "", "a.go": "// [not Markdown](none.md)",
	})
	expect(t, checkLinks(got), "gone.md", "../../out.md", "pic.png", "missing.md")
}

// outside is where a developer's checkout may keep data that is no part of the project. Tests look for it and pass without.
const outside = "../shared"

func checkOutside(t *tree) []string {
	var out []string
	for name, text := range t.texts {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		for i, line := range strings.Split(string(text), "\n") {
			if strings.Contains(line, outside) {
				out = append(out, fmt.Sprintf("%s:%d: mentions %s, which is no part of the project", name, i+1, outside))
			}
		}
	}
	return out
}

func TestOutside(t *testing.T) { report(t, checkOutside(repository(t))) }

func TestOutsideCanFail(t *testing.T) {
	got := small(t, map[string]string{"a/a.go": "// see ../shared/x", "a/a_test.go": "// see ../shared/x", "Makefile": "x\ny ../../shared\n", "b.md": "shared/x"})
	expect(t, checkOutside(got), "a/a.go:5", "Makefile:2")
}
