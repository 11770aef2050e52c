// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"
)

type consumeFlags struct {
	from, to   string
	partitions []int32
	group      string
	count      int64
	follow     bool
	level      isolation
	format     string
	json       bool

	start, end position
}

func newConsumeCommand(s *streams) *cobra.Command {
	c := consumeFlags{level: readUncommitted}
	cmd := &cobra.Command{
		Use:   "consume TOPIC",
		Short: "Read records",
		Long: "Reads from --from to --to, which is by default what is there now; with --follow it goes on. A bare number is an offset.\n" +
			"TIME is " + timeForms + ".\n\n" +
			"--format is like kcat's: " + formatHelp,
		Example: "  varve consume logs\n  varve consume logs --from=-10m --follow\n" +
			"  varve consume logs --from '2024-05-01 14:00:00' --to '2024-05-01 15:00:00' --format '%p %o %D %s\\n'\n" +
			"  varve consume logs --from latest --follow --output json",
		Args: exactArgs("TOPIC"),
	}
	f := cmd.Flags()
	f.StringVar(&c.from, "from", "earliest", "`earliest|latest|OFFSET|TIME`; with --group only where the group has no offset yet")
	f.StringVar(&c.to, "to", "latest", "stop before `latest|OFFSET|TIME`")
	addNumbers(f, &c.partitions, "partition", "p", "only these partitions, `N[,N]`")
	f.StringVarP(&c.group, "group", "g", "", "read as a member of this consumer group and commit what was printed")
	f.Int64VarP(&c.count, "count", "n", 0, "stop after this many records")
	f.BoolVarP(&c.follow, "follow", "F", false, "wait for more instead of stopping at the end")
	f.Var(&c.level, "isolation", "`read_uncommitted|read_committed`")
	f.StringVar(&c.format, "format", "%s\\n", "how a record is printed")
	conn, out := addConnection(cmd), addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c.json = *out == outputJSON
		print, err := c.check(cmd, time.Now())
		if err != nil {
			return err
		}
		for _, end := range []struct {
			flag string
			at   position
		}{{"--from", c.start}, {"--to", c.end}} {
			if end.at.kind == atTime && end.at.at.zone != "" {
				fmt.Fprintf(s.err, "%s %s\n", end.flag, end.at.at)
			}
		}
		r := &reading{flags: &c, topic: args[0], conn: conn, print: print, out: bufio.NewWriterSize(s.out, 1<<16), notes: s.err}
		if c.group != "" {
			return r.asMember(cmd.Context())
		}
		return r.direct(cmd.Context())
	}
	return cmd
}

// check resolves the arguments as of now and returns how a record is printed.
func (c *consumeFlags) check(cmd *cobra.Command, now time.Time) (appendRecord, error) {
	var err error
	if c.start, err = parsePosition(c.from, now, time.Local); err != nil {
		return nil, usagef("--from: %s", err)
	}
	if c.end, err = parsePosition(c.to, now, time.Local); err != nil {
		return nil, usagef("--to: %s", err)
	}
	switch {
	case c.end.kind == atEarliest:
		return nil, usagef("--to earliest would read nothing")
	case c.follow && cmd.Flags().Changed("to"):
		return nil, usagef("--follow and --to exclude each other")
	case c.count < 0:
		return nil, usagef("--count %d must be 0 (no limit) or more", c.count)
	case c.group != "" && len(c.partitions) > 0:
		return nil, usagef("--group and --partition exclude each other: the group assigns partitions")
	case c.group != "" && (c.start.kind == atOffset || cmd.Flags().Changed("to")):
		return nil, usagef("--group takes --from earliest|latest|TIME and no --to")
	case c.json && cmd.Flags().Changed("format"):
		return nil, usagef("--format and --output json exclude each other")
	}
	if c.json {
		return appendJSON, nil
	}
	print, err := compileFormat(c.format)
	if err != nil {
		return nil, usagef("--%s", err)
	}
	return print, nil
}

func (c *consumeFlags) isolationLevel() kgo.IsolationLevel {
	if c.level == readCommitted {
		return kgo.ReadCommitted()
	}
	return kgo.ReadUncommitted()
}
