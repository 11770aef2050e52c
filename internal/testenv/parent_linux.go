// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"os/exec"
	"syscall"
)

// endWithParent lets no server outlive a test binary that was killed.
func endWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
