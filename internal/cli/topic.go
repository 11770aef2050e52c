// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/base64"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
)

func newTopicCommand(s *streams) *cobra.Command {
	return group(&cobra.Command{Use: "topic", Short: "Create, list, describe, alter and delete topics"},
		newTopicCreateCommand(s), newTopicListCommand(s), newTopicDescribeCommand(s), newTopicAlterCommand(s), newTopicDeleteCommand(s))
}

// topicIDText is the form of a topic id that Kafka's tools print.
func topicIDText(id kadm.TopicID) string {
	if id == (kadm.TopicID{}) {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(id[:])
}

// parseConfigs reads repeated KEY=VALUE, of a flag or, with flag "", of arguments.
func parseConfigs(flag string, pairs []string) (map[string]string, error) {
	m := make(map[string]string, len(pairs))
	for _, p := range pairs {
		key, value, ok := strings.Cut(p, "=")
		if !ok || key == "" {
			return nil, usagef("%s is not KEY=VALUE", strings.TrimSpace(flag+" "+strconv.Quote(p)))
		}
		if _, twice := m[key]; twice {
			return nil, usagef("%s", strings.TrimSpace(flag+" "+key+" is given twice"))
		}
		m[key] = value
	}
	return m, nil
}
