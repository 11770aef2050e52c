// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// KafkaScript finds the script that starts Apache Kafka and runs its tools, or skips: VARVE_KAFKA names it, else it is looked for beside the
// repository.
func KafkaScript(t testing.TB) string {
	t.Helper()
	script := os.Getenv("VARVE_KAFKA")
	if script == "" {
		script = filepath.Join(Root(t), "..", "shared", "tools", "kafka", "kafka")
	}
	if _, err := os.Stat(script); err != nil {
		t.Skipf("skipped: no script that runs Apache Kafka: set VARVE_KAFKA (%v)", err)
	}
	if _, err := exec.LookPath("java"); err != nil {
		t.Skipf("skipped: Apache Kafka needs Java: %v", err)
	}
	return script
}

// KafkaTool starts one of Apache Kafka's own tools. Its output is the process's Log.
func KafkaTool(t testing.TB, tool string, args ...string) *Process {
	t.Helper()
	cmd := exec.Command(KafkaScript(t), append([]string{"tool", tool}, args...)...)
	cmd.Env = append(os.Environ(), "VARVE_KAFKA_TOOL_HEAP=128m")
	return spawn(t, tool, filepath.Join(TempDir(t, "kafka-tool"), "log"), cmd)
}
