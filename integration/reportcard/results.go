// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"io"
	"strings"
)

// Outcomes of a case.
const (
	pass = "pass"
	fail = "fail"
	none = "none" // not in the client's API
)

// result is what became of one case.
type result struct {
	outcome string
	reason  string
}

// report is what one client said of one system.
type report struct {
	version string
	order   []string // of the cases
	cases   map[string]result
	// broken says why the client did not get to its end, or could not be installed.
	broken string
}

// parseReport reads the lines of a client. Lines of another form are the client's own talk; of two lines about a case the later one counts.
func parseReport(r io.Reader) (*report, error) {
	out := &report{cases: map[string]result{}}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		fields := strings.Split(lines.Text(), "\t")
		if len(fields) < 2 {
			continue
		}
		rest := strings.Join(fields[2:], " ")
		switch fields[0] {
		case pass, fail, none:
			if _, again := out.cases[fields[1]]; !again {
				out.order = append(out.order, fields[1])
			}
			out.cases[fields[1]] = result{fields[0], rest}
		case "version":
			out.version = strings.Join(fields[1:], " ")
		case "broken":
			out.broken = strings.Join(fields[1:], " ")
		}
	}
	return out, lines.Err()
}

// comparison is a client's column: the cases of both systems side by side.
type comparison struct {
	client       client
	version      string
	broken       string
	kafka, varve *report
	order        []string
}

func compare(c client, kafka, varve *report) *comparison {
	out := &comparison{client: c, version: kafka.version, kafka: kafka, varve: varve, order: kafka.order}
	for _, name := range varve.order {
		if _, known := kafka.cases[name]; !known {
			out.order = append(out.order, name)
		}
	}
	for _, r := range []*report{varve, kafka} {
		if r.broken != "" {
			out.broken = r.broken
		}
	}
	return out
}

// of returns the result of a case, or a failure that says why there is none.
func (r *report) of(name string) result {
	if got, ok := r.cases[name]; ok {
		return got
	}
	why := r.broken
	if why == "" {
		why = "the client ended before it"
	}
	return result{fail, "no result: " + why}
}

// passedOnBoth counts the cases that pass on Kafka, and those of them that pass on Varve.
func (c *comparison) passedOnBoth() (kafka, both int) {
	for _, name := range c.order {
		if c.kafka.of(name).outcome != pass {
			continue
		}
		kafka++
		if c.varve.of(name).outcome == pass {
			both++
		}
	}
	return kafka, both
}

// lost returns the cases that pass on Kafka and not on Varve; a test that skips itself there is one of them.
func (c *comparison) lost() []string {
	var out []string
	for _, name := range c.order {
		if c.kafka.of(name).outcome == pass && c.varve.of(name).outcome != pass {
			out = append(out, name)
		}
	}
	return out
}

// where returns the cases with these outcomes.
func (c *comparison) where(kafka, varve string) []string {
	var out []string
	for _, name := range c.order {
		if c.kafka.of(name).outcome == kafka && c.varve.of(name).outcome == varve {
			out = append(out, name)
		}
	}
	return out
}
