// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// Exit codes.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

// streams are what a command reads and writes; tests replace them.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// commands are all top-level commands in the order of the help text.
var commands = []func(*streams) *cobra.Command{
	newDevCommand,
	newServeCommand,
	newTopicCommand,
	newConfigCommand,
	newProduceCommand,
	newConsumeCommand,
	newGroupCommand,
	newTxnCommand,
	newOffsetsCommand,
	newSegmentCommand,
	newWhyCommand,
	newClusterCommand,
	newNodeCommand,
	newReassignCommand,
	newElectCommand,
	newRestoreCommand,
	newBenchCommand,
	newVersionCommand,
	newCompletionCommand,
}

// Main runs the command line of this process until done or interrupted and returns the exit code.
func Main() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return Run(ctx, os.Args[1:], streams{in: os.Stdin, out: os.Stdout, err: os.Stderr})
}

// Run executes one command line.
func Run(ctx context.Context, args []string, s streams) int {
	root := newRoot(&s)
	root.SetArgs(args)
	cmd, err := noSuchCommand(root, args)
	if err == nil {
		cmd, err = root.ExecuteContextC(ctx)
	}
	switch {
	case err == nil:
		return exitDone
	case errors.Is(err, errReported):
		return exitFailed
	}
	text, code := oneLine(err.Error()), exitFailed
	if errors.Is(err, errUsage) || isCobraUsage(err) {
		code = exitUsage
		if !strings.Contains(text, "--help") {
			text += fmt.Sprintf("; see `%s --help`", cmd.CommandPath())
		}
	}
	fmt.Fprintf(s.err, "%s: %s\n", cmd.CommandPath(), text)
	return code
}

func newRoot(s *streams) *cobra.Command {
	root := group(&cobra.Command{
		Use:   "varve",
		Short: "A Kafka broker whose log settles in object storage",
		Long: "Varve speaks the Kafka protocol. A node keeps the hot tail of each log on its disk; everything older lives in\n" +
			"immutable objects in a bucket, exactly addressable by offset and by time.",
	})
	root.Version = Version
	root.SetVersionTemplate(versionText() + "\n")
	root.SilenceErrors, root.SilenceUsage = true, true
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetIn(s.in)
	root.SetOut(s.out)
	root.SetErr(s.err)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usagef("%s", plainFlag(err)) })
	for _, c := range commands {
		root.AddCommand(c(s))
	}
	return root
}

// noSuchCommand refuses --help of a command that is not there. Cobra shows that of the command above, as if all were well.
func noSuchCommand(root *cobra.Command, args []string) (*cobra.Command, error) {
	if !slices.Contains(args, "--help") && !slices.Contains(args, "-h") {
		return nil, nil
	}
	cmd, rest, err := root.Find(args)
	if err != nil || !cmd.HasSubCommands() {
		return nil, nil // it fails by itself, or is there
	}
	for _, arg := range rest {
		if !strings.HasPrefix(arg, "-") && arg != "help" {
			return cmd, cmd.RunE(cmd, []string{arg})
		}
	}
	return nil, nil
}

// group makes c a command that only holds others: anything but one of their names is wrong usage.
func group(c *cobra.Command, subs ...*cobra.Command) *cobra.Command {
	c.Args = cobra.ArbitraryArgs
	c.RunE = func(cmd *cobra.Command, args []string) error {
		var names []string
		for _, sub := range cmd.Commands() {
			if !sub.Hidden && sub.Name() != "help" {
				names = append(names, sub.Name())
			}
		}
		list := strings.Join(names, ", ")
		if len(args) == 0 {
			return usagef("needs a command: %s", list)
		}
		return usagef("no command %q; there is %s", args[0], list)
	}
	c.AddCommand(subs...)
	return c
}

// isCobraUsage recognises the complaints that cobra makes before a command runs and offers no type for.
func isCobraUsage(err error) bool {
	text := err.Error()
	return strings.HasPrefix(text, "unknown command") || strings.HasPrefix(text, "required flag") ||
		strings.HasPrefix(text, "if any flags in the group") || strings.HasPrefix(text, "at least one of the flags")
}

// exactArgs demands the named arguments.
func exactArgs(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return usagef("needs %s", strings.Join(names[len(args):], " "))
		case len(args) > len(names):
			return usagef("does not take %q", args[len(names)])
		}
		return nil
	}
}

// someArgs demands one or more of the named argument.
func someArgs(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usagef("needs at least one %s", name)
		}
		return nil
	}
}
