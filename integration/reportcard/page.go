// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
)

const intro = `<!-- Written by make report-card. -->
# Report card

Foreign Kafka clients, each with the same list of cases as far as its API goes, run one after another against Apache Kafka and against
Varve. What counts is how many of the cases that pass on Kafka pass on Varve.

`

// write makes the page from what lies in the folder of the results. A difference that nobody has explained is an error, after the page
// was written.
func (c *card) write(path, conditions string) error {
	var columns []*comparison
	for _, cl := range clients {
		kafka, err := c.read(cl, "kafka")
		if err != nil {
			return err
		}
		varve, err := c.read(cl, "varve")
		if err != nil {
			return err
		}
		columns = append(columns, compare(cl, kafka, varve))
	}
	var page bytes.Buffer
	unexplained := render(&page, conditions, columns)
	if err := os.WriteFile(path, page.Bytes(), 0o644); err != nil {
		return err
	}
	if unexplained > 0 {
		return fmt.Errorf("%d differences have no reason yet: find it, and fix it or name it in clients.go", unexplained)
	}
	return nil
}

func (c *card) read(cl client, system string) (*report, error) {
	f, err := os.Open(c.file(cl, system))
	if os.IsNotExist(err) {
		return &report{broken: "it was not run"}, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return parseReport(f)
}

// render writes the page and returns the number of differences without a reason.
func render(w io.Writer, conditions string, columns []*comparison) (unexplained int) {
	fmt.Fprint(w, intro, strings.TrimSpace(conditions), "\n\n| client | version | passes on Kafka | of these on Varve | differences |\n|---|---|---|---|---|\n")
	kafkaAll, bothAll := 0, 0
	for _, c := range columns {
		kafka, both := c.passedOnBoth()
		kafkaAll, bothAll = kafkaAll+kafka, bothAll+both
		version := c.version
		if version == "" {
			version = c.client.version
		}
		if len(c.order) == 0 {
			fmt.Fprintf(w, "| %s | %s | – | – | not to be had: %s |\n", c.client.name, version, cell(c.broken))
			continue
		}
		lost := strings.Join(c.lost(), ", ")
		if lost == "" {
			lost = "none"
		}
		fmt.Fprintf(w, "| %s | %s | %d | %d | %s |\n", c.client.name, version, kafka, both, lost)
	}
	fmt.Fprintf(w, "| all | | %d | %d | |\n", kafkaAll, bothAll)
	unexplained = renderDifferences(w, columns)
	renderOthers(w, columns)
	return unexplained
}

func renderDifferences(w io.Writer, columns []*comparison) (unexplained int) {
	fmt.Fprint(w, "\n## Passes on Kafka, not on Varve\n\n| client | case | reason | what the client said |\n|---|---|---|---|\n")
	for _, c := range columns {
		for _, name := range c.lost() {
			why, known := explain(c.client, name)
			if !known {
				why = "**not explained yet**"
				unexplained++
			}
			fmt.Fprintf(w, "| %s | %s | %s | %s |\n", c.client.id(), name, why, cell(c.varve.of(name).reason))
		}
	}
	return unexplained
}

// renderOthers lists what says nothing about Varve: what fails on Kafka as well, and what an API lacks.
func renderOthers(w io.Writer, columns []*comparison) {
	fmt.Fprint(w, "\n## Fails on Kafka\n\n| client | case | on Varve | what the client said of Kafka |\n|---|---|---|---|\n")
	for _, c := range columns {
		for _, on := range []string{pass, fail} {
			for _, name := range c.where(fail, on) {
				if _, ran := c.kafka.cases[name]; !ran {
					continue // a test that ended as a whole on Varve, and in parts on Kafka
				}
				fmt.Fprintf(w, "| %s | %s | %s | %s |\n", c.client.id(), name, on, cell(c.kafka.of(name).reason))
			}
		}
	}
	fmt.Fprint(w, "\n## Not in the client's API\n\n")
	for _, c := range columns {
		if missing := c.where(none, none); len(missing) > 0 {
			fmt.Fprintf(w, "- %s: %s\n", c.client.id(), strings.Join(missing, ", "))
		}
	}
	fmt.Fprint(w, "\n## Cases that pass on both\n\n")
	for _, c := range columns {
		if same := c.where(pass, pass); len(same) > 0 {
			fmt.Fprintf(w, "- %s: %s\n", c.client.id(), strings.Join(same, ", "))
		}
	}
}

// cell makes a text fit a cell of a table.
func cell(s string) string {
	const most = 160
	s = strings.ReplaceAll(oneLine(s), "|", "\\|")
	if r := []rune(s); len(r) > most {
		s = string(r[:most]) + "…"
	}
	return "`" + strings.ReplaceAll(s, "`", "'") + "`"
}
