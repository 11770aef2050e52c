// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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

// startEtcd starts this node's member and connects to it. stop ends the member, after its clients.
func (o *nodeOptions) startEtcd(ctx context.Context, log *slog.Logger) (kv metadata.KV, stop func(), err error) {
	peers, err := o.members()
	if err != nil {
		return nil, nil, err
	}
	dir := o.etcdData
	if dir == "" {
		dir = filepath.Join(o.data[0], "etcd")
	}
	if len(peers) > 1 {
		log.Info("waiting for a majority of the etcd members", "members", len(peers), "dir", dir)
	}
	options := embed.Options{Listen: o.etcdListen, Peers: peers, Name: strconv.Itoa(int(o.nodeID)), ClusterToken: o.cluster}
	if o.small {
		options.WALSegmentBytes = smallWAL
	}
	server, err := embed.Start(ctx, dir, options)
	switch {
	case errors.Is(err, embed.ErrLocked):
		return nil, nil, fmt.Errorf("--data %s is in use by another process: stop it, or give this node another directory (%w)", o.data[0], err)
	case err != nil:
		return nil, nil, fmt.Errorf("--etcd embed: %w", err)
	}
	member := *o
	member.etcd = server.Endpoints()
	var inside etcd.KVServer
	if o.etcdUser == "" { // only a connection can log in
		inside = server.Inside()
	}
	if kv, err = member.openEtcd(ctx, log, inside); err != nil {
		server.Close()
		return nil, nil, err
	}
	return kv, server.Close, nil
}
