// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
)

func newConfigCommand(s *streams) *cobra.Command {
	return group(&cobra.Command{Use: "config", Short: "Describe and change topic, broker and group configs"},
		newConfigDescribeCommand(s), newConfigSetCommand(s), newConfigUnsetCommand(s))
}

// onceFlag is a string that may be given once: of two, one would be left out without a word.
type onceFlag string

func (o *onceFlag) String() string { return string(*o) }
func (o *onceFlag) Type() string   { return "string" }
func (o *onceFlag) Set(v string) error {
	if *o != "" {
		return fmt.Errorf("it is given twice (%s before); run the command once for each", *o)
	}
	*o = onceFlag(v)
	return nil
}

// resourceFlags name whose configs a command is about: exactly one of them is given.
type resourceFlags struct {
	topic, broker, group onceFlag
	brokers              bool
}

func addResource(cmd *cobra.Command) *resourceFlags {
	r := new(resourceFlags)
	f := cmd.Flags()
	f.VarP(&r.topic, "topic", "t", "configs of this topic")
	f.Var(&r.broker, "broker", "configs of the broker with this node id")
	f.BoolVar(&r.brokers, "brokers", false, "dynamic configs of all brokers (the cluster-wide default)")
	f.VarP(&r.group, "group", "g", "configs of this group")
	return r
}

func (r *resourceFlags) resource() (resource, error) {
	var named []resource
	if r.topic != "" {
		named = append(named, resource{topicResource, r.topic.String()})
	}
	if r.group != "" {
		named = append(named, resource{groupResource, r.group.String()})
	}
	if r.broker != "" {
		id, err := strconv.ParseInt(r.broker.String(), 10, 32)
		if err != nil || id < 0 {
			return resource{}, usagef("--broker %q is not a node id; `varve cluster describe` shows them", r.broker)
		}
		named = append(named, resource{brokerResource, strconv.FormatInt(id, 10)})
	}
	if r.brokers {
		named = append(named, resource{kind: brokerResource})
	}
	if len(named) != 1 {
		return resource{}, usagef("give exactly one of --topic, --broker, --brokers, --group")
	}
	return named[0], nil
}
