// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"

	"github.com/varve/varve/internal/cli"
)

func main() { os.Exit(cli.Main()) }
