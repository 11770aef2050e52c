// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// card is one call of the command.
type card struct {
	sources  string // the folder of the clients
	results  string // what the clients printed
	cache    string // what was installed
	box      time.Duration
	replicas int
	systems  []system
}

// system is one of the two that are compared.
type system struct{ name, bootstrap string }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "reportcard:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("reportcard", flag.ContinueOnError)
	kafka := flags.String("kafka", "", "bootstrap servers of Apache Kafka; empty: do not run anything against it")
	varve := flags.String("varve", "", "bootstrap servers of Varve; empty: do not run anything against it")
	only := flags.String("clients", "", "names of the clients to run, or name-version, parted by spaces; empty: all")
	out := flags.String("out", "docs/report-card.md", "the page to write")
	c := card{}
	flags.StringVar(&c.sources, "sources", "integration/reportcard", "folder of the clients")
	flags.StringVar(&c.results, "results", "", "folder of what the clients printed")
	flags.StringVar(&c.cache, "cache", "", "folder to install clients in")
	flags.DurationVar(&c.box, "box", 10*time.Minute, "longest run of one client against one system")
	flags.IntVar(&c.replicas, "replicas", 3, "nodes of each system, and replicas of each topic")
	conditions := flags.String("conditions", "", "what the page says of date, commit and machine")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if c.results == "" || c.cache == "" {
		return errors.New("-results and -cache name folders; both are needed")
	}
	c.systems = []system{{"kafka", *kafka}, {"varve", *varve}}
	for _, cl := range clients {
		if !wanted(cl, *only) {
			continue
		}
		if err := c.test(ctx, cl); err != nil {
			return err
		}
	}
	return c.write(*out, *conditions)
}

func wanted(c client, only string) bool {
	names := strings.Fields(only)
	return len(names) == 0 || slices.Contains(names, c.name) || slices.Contains(names, c.id())
}

// test installs a client and runs it against each system that has an address. A client that breaks is a result, not an error.
func (c *card) test(ctx context.Context, cl client) error {
	dir := filepath.Join(c.cache, cl.id())
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.MkdirAll(c.results, 0o755)); err != nil {
		return err
	}
	_, refused := c.script(ctx, cl, "install.sh", "", []string{"CARD_DIR=" + dir})
	for i, s := range c.systems {
		if s.bootstrap == "" {
			continue
		}
		var printed []byte
		err := refused
		if refused == nil {
			fmt.Fprintf(os.Stderr, "== %s %s on %s\n", cl.name, cl.version, s.name)
			word := fmt.Sprintf("card%s-%s%d", strconv.FormatInt(int64(os.Getpid()), 36), strconv.FormatInt(time.Now().Unix()%1e6, 36), i)
			printed, err = c.script(ctx, cl, "run.sh", s.name, []string{"CARD_DIR=" + dir, "CARD_BOOTSTRAP=" + s.bootstrap, "CARD_RUN=" + word,
				"CARD_REPLICAS=" + strconv.Itoa(c.replicas)})
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			printed = fmt.Appendf(printed, "\nbroken\t%s\n", oneLine(err.Error()))
		}
		if err := c.keep(cl, s.name, printed); err != nil {
			return err
		}
	}
	return nil
}

// keep stores what a client printed. When only some cases ran, it is put behind what there is: the last word on a case counts.
func (c *card) keep(cl client, system string, printed []byte) error {
	how := os.O_CREATE | os.O_WRONLY | os.O_TRUNC
	if os.Getenv("CARD_CASES") != "" {
		how = os.O_CREATE | os.O_WRONLY | os.O_APPEND
	}
	f, err := os.OpenFile(c.file(cl, system), how, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(printed)
	return errors.Join(err, f.Close())
}

func (c *card) file(cl client, system string) string {
	return filepath.Join(c.results, cl.id()+"."+system)
}

// script runs a program of the client within the time box, and ends all it started.
func (c *card) script(ctx context.Context, cl client, program, system string, env []string) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.box, fmt.Errorf("the time box of %v was over", c.box))
	defer cancel()
	path, err := filepath.Abs(filepath.Join(c.sources, cl.folder, program))
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, path, cl.name, cl.version)
	cmd.Env = append(os.Environ(), env...)
	var printed, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &printed, &said
	killWhole(cmd)
	cmd.WaitDelay = 10 * time.Second
	err = cmd.Run()
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	} else if err != nil {
		err = fmt.Errorf("%s: %w: %s", program, err, lastLine(said.Bytes()))
	}
	_ = os.WriteFile(filepath.Join(c.results, strings.Join([]string{cl.id(), program, system, "log"}, ".")), said.Bytes(), 0o644) // for whoever looks for a cause
	return printed.Bytes(), err
}

func lastLine(b []byte) string {
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return lines[len(lines)-1]
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
