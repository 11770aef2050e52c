// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"os/exec"
	"syscall"
)

// endWithParent lets no child outlive a test binary that was killed. (Linux delivers the signal when the thread that started
// the child ends; the runtime keeps its threads, unless a goroutine ends while locked to one, which nothing here does.)
func endWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
