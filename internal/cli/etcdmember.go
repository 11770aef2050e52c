// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/metadata/etcd"
	"github.com/varve/varve/metadata/etcd/embed"
)

// etcdEmbed in place of the endpoints makes the node a member itself.
const etcdEmbed = "embed"

func (o *nodeOptions) embedsEtcd() bool { return len(o.etcd) == 1 && o.etcd[0] == etcdEmbed }

// members reads --etcd-peers: member names, which are node ids, and their URLs. Empty when this is the only one.
func (o *nodeOptions) members() (map[string]string, error) {
	if !o.embedsEtcd() {
		if len(o.etcdPeers) > 0 || o.etcdListen != "" || o.etcdData != "" {
			return nil, usagef("--etcd-peers, --etcd-listen and --etcd-data go with --etcd embed")
		}
		return nil, nil
	}
	if len(o.etcdPeers) == 0 {
		return nil, nil
	}
	members := map[string]string{}
	for _, item := range o.etcdPeers {
		name, at, ok := strings.Cut(strings.TrimSpace(item), "=")
		id, err := strconv.ParseInt(name, 10, 32)
		u, urlErr := url.Parse(at)
		if !ok || err != nil || id < 0 || urlErr != nil || u.Scheme != "http" || u.Port() == "" {
			return nil, usagef("--etcd-peers: %q is not NODE=http://HOST:PORT", item)
		}
		if members[name] != "" {
			return nil, usagef("--etcd-peers names node %s twice", name)
		}
		members[name] = at
	}
	if members[strconv.Itoa(int(o.nodeID))] == "" {
		return nil, usagef("--etcd-peers does not name node %d: only the nodes it names are members; give the others --etcd with the members' --etcd-listen URLs", o.nodeID)
	}
	return members, nil
}

// memberOptions are the member's, from the flags alone.
func (o *nodeOptions) memberOptions() (embed.Options, error) {
	peers, err := o.members()
	return embed.Options{Listen: o.etcdListen, Peers: peers, Name: strconv.Itoa(int(o.nodeID)), ClusterToken: o.cluster}, err
}

// startEtcd starts this node's member and connects to it. stop ends the member, after its clients.
func (n *node) startEtcd(ctx context.Context) (kv metadata.KV, stop func(), err error) {
	o := n.options
	member, err := o.memberOptions()
	if err != nil {
		return nil, nil, err
	}
	dir := o.etcdData
	if dir == "" {
		dir = filepath.Join(o.data[0], "etcd")
	}
	if err := n.made.dir(dir, 0o700); err != nil {
		return nil, nil, fmt.Errorf("--etcd embed: %w", err)
	}
	if len(member.Peers) > 1 {
		n.log.Info("waiting for a majority of the etcd members", "members", len(member.Peers), "dir", dir)
	}
	member.Logger, member.Anew = n.log.With("component", "etcd"), n.mayMakeEtcd
	if o.small {
		member.WALSegmentBytes = smallWAL
	}
	server, err := embed.Start(ctx, dir, member)
	switch {
	case errors.Is(err, embed.ErrLocked):
		return nil, nil, fmt.Errorf("--data %s is in use by another process: stop it, or give this node another directory (%w)", o.data[0], err)
	case err != nil:
		return nil, nil, fmt.Errorf("--etcd embed: %w", err)
	}
	n.log.Info("the etcd member runs", "release", embed.Release, "clients", server.Endpoints()[0], "dir", dir)
	at := *o
	at.etcd = server.Endpoints()
	var inside etcd.KVServer
	if o.etcdUser == "" { // only a connection can log in
		inside = server.Inside()
	}
	if kv, err = at.openEtcd(ctx, n.log, inside); err != nil {
		server.Discard()
		return nil, nil, err
	}
	n.etcd, n.member = at.etcd, server
	return kv, func() {
		if n.made.kept {
			server.Close()
		} else {
			server.Discard()
		}
	}, nil
}

// watchMember ends the node with its etcd member: without it the node would only lose its lease, and nobody would be told why.
func (n *node) watchMember(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-n.member.Err():
		return fmt.Errorf("the etcd member ended: %w", err)
	case <-n.member.Stopped():
		return errors.New("the etcd member ended: it was removed from the others, or its disk failed; start the node again, with an empty etcd directory if the others have replaced it")
	}
}
