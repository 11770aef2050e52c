// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

// killWhole makes the end of cmd's context end all that cmd started.
func killWhole(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
