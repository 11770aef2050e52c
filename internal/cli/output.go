// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// outputFlag is --output table|json.
type outputFlag string

const (
	outputTable outputFlag = "table"
	outputJSON  outputFlag = "json"
)

func (o *outputFlag) String() string { return string(*o) }
func (o *outputFlag) Type() string   { return "table|json" }
func (o *outputFlag) Set(v string) error {
	switch outputFlag(v) {
	case outputTable, outputJSON:
		*o = outputFlag(v)
		return nil
	}
	return fmt.Errorf("%q is not table or json", v)
}

func addOutput(cmd *cobra.Command) *outputFlag {
	o := outputTable
	cmd.Flags().VarP(&o, "output", "o", "`table|json`")
	return &o
}

// table is what a command shows: the same rows as aligned text or, from values, as JSON.
type table struct {
	header []string
	rows   [][]string
}

func (t *table) add(cells ...any) {
	row := make([]string, len(cells))
	for i, c := range cells {
		row[i] = cell(c)
	}
	t.rows = append(t.rows, row)
}

func cell(v any) string {
	switch v := v.(type) {
	case string:
		if v == "" {
			return "-"
		}
		return v
	case *int64:
		if v == nil {
			return "-"
		}
		return fmt.Sprint(*v)
	case []int32:
		parts := make([]string, len(v))
		for i, n := range v {
			parts[i] = fmt.Sprint(n)
		}
		return cell(strings.Join(parts, ","))
	}
	return fmt.Sprint(v)
}

func (t *table) write(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	if len(t.header) > 0 {
		fmt.Fprintln(tw, strings.ToUpper(strings.Join(t.header, "\t")))
	}
	for _, r := range t.rows {
		fmt.Fprintln(tw, strings.Join(r, "\t"))
	}
	return tw.Flush()
}

// show prints value as JSON or t as text, as --output says.
func (o outputFlag) show(w io.Writer, value any, t *table) error {
	if o == outputJSON {
		return writeJSON(w, value)
	}
	return t.write(w)
}

func writeJSON(w io.Writer, value any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(value)
}

func writeLine(w io.Writer, format string, args ...any) error {
	_, err := fmt.Fprintf(w, format+"\n", args...)
	return err
}

// marshalPlain is one line of JSON, with its end, that leaves <, > and & as they are.
func marshalPlain(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return b.Bytes(), err
}

// counted is a number of things: 1 config, 2 configs.
func counted(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// addNumbers declares a flag with a list of numbers. The flag library would show the empty default as "[]".
func addNumbers(f *pflag.FlagSet, to *[]int32, name, short, usage string) {
	f.Int32SliceVarP(to, name, short, nil, usage)
	f.Lookup(name).DefValue = ""
}
