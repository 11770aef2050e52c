// SPDX-License-Identifier: Apache-2.0

package embed

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
)

// ErrOtherPeers: the directory holds a member of another set of peers than it was to be started in. etcd goes by its directory, in silence.
var ErrOtherPeers = errors.New("embedded etcd: the directory is a member's of another set")

// compare refuses a directory that was made for other peers (M2). Members may be missing in the stored list, but no majority: one that is being
// replaced is in no list for a moment, or until it is started again.
func (o *Options) compare(dir string, self types.ID, stored []*membership.Member) error {
	if len(stored) == 0 {
		return nil // it was ended before it had heard of anybody
	}
	mine, wanted := peerURL.String(), []string{peerURL.String()}
	if len(o.Peers) > 0 {
		mine, wanted = o.Peers[o.Name], slices.Sorted(maps.Values(o.Peers))
	}
	known := 0
	var have []string
	strange := false
	for _, m := range stored {
		url := strings.Join(m.PeerURLs, ",")
		have = append(have, url)
		if slices.Contains(wanted, url) {
			known++
		} else {
			strange = true
		}
		if m.ID == self && url != mine && slices.Contains(wanted, url) {
			return fmt.Errorf("%w: %s is the directory of the member at %s, this node's --etcd-peers give it %s: give each node its own directory", ErrOtherPeers, dir, url, mine)
		}
	}
	if !strange && 2*known > len(wanted) {
		return nil
	}
	slices.Sort(have)
	return fmt.Errorf("%w: %s is a member of %s, this start is for %s: start it with the --etcd-peers that it was made with, or with an empty directory",
		ErrOtherPeers, dir, describe(have), describe(wanted))
}

// describe names a set of peers as a person would.
func describe(urls []string) string {
	if len(urls) == 1 && urls[0] == peerURL.String() {
		return "a cluster of its own (no --etcd-peers)"
	}
	return strings.Join(urls, " ")
}
