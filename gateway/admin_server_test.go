// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"testing"
	"time"
)

// newAdminScript begins a conversation with a node of its own, or with the oracle where one is named.
func newAdminScript(t *testing.T) *adminScript {
	t.Helper()
	x := &adminScript{t: t, prefix: "T-"}
	if addr := os.Getenv(oracleEnv); addr != "" {
		x.oracle, x.prefix = true, fmt.Sprintf("T%d-", time.Now().UnixNano())
		x.wire = &wireClient{t: t, dial: func() (net.Conn, error) { return net.Dial("tcp", addr) }}
	} else {
		n := startNode(t, nodeOptions{gateway: Config{LogLevel: new(slog.LevelVar)}})
		x.wire = &wireClient{t: t, dial: func() (net.Conn, error) { return n.net.Dial(context.Background(), "client", testAddress) }}
	}
	t.Cleanup(x.wire.close)
	return x
}
