// SPDX-License-Identifier: Apache-2.0

package card

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// What the harness says.
var (
	Bootstrap   = strings.Split(os.Getenv("CARD_BOOTSTRAP"), ",")
	Replicas, _ = strconv.Atoi(os.Getenv("CARD_REPLICAS"))
	// Base is the time of the first record that a case writes: recent, as retention goes by it.
	Base = time.Now().Add(-time.Hour).Truncate(time.Millisecond)
)

// Codecs by name.
var Codecs = []string{"none", "gzip", "snappy", "lz4", "zstd"}

const limit = time.Minute

// Name makes a name of a topic or group of this run.
func Name(what string) string { return os.Getenv("CARD_RUN") + "-" + what }

type oneCase struct {
	name string
	run  func(context.Context)
}

var cases []oneCase

// Case adds a case to the list. It passes if run returns; Check and its kin end it.
func Case(name string, run func(context.Context)) { cases = append(cases, oneCase{name, run}) }

// None adds a case for which the client's API has nothing.
func None(name, why string) {
	Case(name, func(context.Context) { panic(notThere(why)) })
}

type (
	failure  string
	notThere string
)

// Check ends the case unless the condition holds.
func Check(ok bool, format string, args ...any) {
	if !ok {
		panic(failure(fmt.Sprintf(format, args...)))
	}
}

// Must ends the case with an error.
func Must(err error) { Check(err == nil, "%v", err) }

// Get returns the value unless there is an error.
func Get[T any](v T, err error) T {
	Must(err)
	return v
}

// Equal ends the case unless both print alike.
func Equal(got, want any) {
	g, w := fmt.Sprintf("%v", got), fmt.Sprintf("%v", want)
	Check(g == w, "got %.150s want %.150s", g, w)
}

// Until polls until the condition holds, for half a minute.
func Until(ctx context.Context, what string, holds func() bool) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for !holds() {
		select {
		case <-ctx.Done():
			Check(false, "no %s within 30 s", what)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// Main runs the cases.
func Main() {
	fmt.Printf("version\t%s\n", os.Getenv("CARD_VERSION"))
	wanted := strings.Fields(os.Getenv("CARD_CASES"))
	for _, c := range cases {
		if len(wanted) == 0 || slices.Contains(wanted, c.name) {
			fmt.Println(outcome(c))
		}
	}
	os.Exit(0) // goroutines of a client whose case failed would wait forever
}

func outcome(c oneCase) string {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	ended := make(chan any, 1)
	go func() {
		defer func() { ended <- recover() }()
		c.run(ctx)
	}()
	var got any
	select {
	case got = <-ended:
	case <-time.After(limit + 5*time.Second):
		got = fmt.Sprint("not done within ", limit)
	}
	switch got := got.(type) {
	case nil:
		return "pass\t" + c.name
	case notThere:
		return "none\t" + c.name + "\t" + string(got)
	default:
		return fmt.Sprintf("fail\t%s\t%.300s", c.name, strings.Join(strings.Fields(fmt.Sprint(got)), " "))
	}
}
