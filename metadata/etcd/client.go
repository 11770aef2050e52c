// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/varve/varve/metadata"
)

// Config says where etcd is.
type Config struct {
	Endpoints []string // URLs
	TLS       *tls.Config
	Username  string
	Password  string
	Logger    *slog.Logger
	// Inside serves reads and transactions without a connection, where the member at the endpoints is in this process; leases, watches and
	// the status go over the connection. Its errors are those that the connection would give. nil: everything goes there.
	Inside KVServer
}

// KVServer is what is asked of a member in this process (pb.KVServer has it).
type KVServer interface {
	Range(context.Context, *pb.RangeRequest) (*pb.RangeResponse, error)
	Txn(context.Context, *pb.TxnRequest) (*pb.TxnResponse, error)
	Compact(context.Context, *pb.CompactionRequest) (*pb.CompactionResponse, error)
}

// Validate checks the configuration.
func (c *Config) Validate() error {
	if len(c.Endpoints) == 0 {
		return errors.New("no etcd endpoint given")
	}
	for _, e := range c.Endpoints {
		scheme, rest, ok := strings.Cut(e, "://")
		switch {
		case !ok || rest == "":
			return fmt.Errorf("etcd endpoint %q is no URL such as http://127.0.0.1:2379", e)
		case scheme != "http" && scheme != "https" && scheme != "unix":
			return fmt.Errorf("etcd endpoint %q: scheme %q is not http, https or unix", e, scheme)
		case scheme == "https" && c.TLS == nil:
			c.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
		}
	}
	return nil
}

// Client implements metadata.KV on etcd.
type Client struct {
	c     *clientv3.Client
	kv    KVServer
	local *local // kv, where the member is in this process
	lease pb.LeaseClient
}

// remote asks a member over the connection.
type remote struct{ c pb.KVClient }

func (r remote) Range(ctx context.Context, in *pb.RangeRequest) (*pb.RangeResponse, error) {
	return r.c.Range(clientv3.WithRequireLeader(ctx), in)
}

func (r remote) Txn(ctx context.Context, in *pb.TxnRequest) (*pb.TxnResponse, error) {
	return r.c.Txn(clientv3.WithRequireLeader(ctx), in)
}

func (r remote) Compact(ctx context.Context, in *pb.CompactionRequest) (*pb.CompactionResponse, error) {
	return r.c.Compact(clientv3.WithRequireLeader(ctx), in)
}

var _ metadata.KV = (*Client)(nil)

// New makes a client. It does not wait for a connection.
func New(cfg Config) (*Client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	c, err := clientv3.New(clientv3.Config{
		Endpoints: cfg.Endpoints, TLS: cfg.TLS, Username: cfg.Username, Password: cfg.Password,
		DialTimeout: dialTimeout, DialKeepAliveTime: pingEvery, DialKeepAliveTimeout: pingTimeout, PermitWithoutStream: false,
		MaxUnaryRetries: 1, // one attempt: who sends again is the caller's decision (E1)
		Logger:          zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
			// A broker's lease runs while it waits to connect again: seconds matter.
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: dialTimeout,
		})},
	})
	if err != nil {
		return nil, fmt.Errorf("etcd %s: %w", strings.Join(cfg.Endpoints, ","), err)
	}
	out := &Client{c: c, kv: remote{pb.NewKVClient(c.ActiveConnection())}, lease: pb.NewLeaseClient(c.ActiveConnection())}
	if cfg.Inside != nil {
		out.local = newLocal(cfg.Inside)
		out.kv = out.local
	}
	return out, nil
}

// Open makes a client, waits until etcd answers, and refuses a release of etcd that is known to lose leases or data.
func Open(ctx context.Context, cfg Config) (*Client, error) {
	c, err := New(cfg)
	if err != nil {
		return nil, err
	}
	for {
		actx, cancel := context.WithTimeout(ctx, dialTimeout)
		st, err := c.Status(actx)
		cancel()
		if err == nil {
			if err = checkRelease(st.Version); err == nil {
				return c, nil
			}
			return nil, errors.Join(err, c.Close())
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("etcd %s does not answer: %w: check --etcd", strings.Join(cfg.Endpoints, ","), err), c.Close())
		case <-time.After(retryEvery):
		}
	}
}

// Txn implements metadata.KV.
func (c *Client) Txn(ctx context.Context, t metadata.Txn) (metadata.TxnResult, error) {
	if err := ctx.Err(); err != nil {
		return metadata.TxnResult{}, fmt.Errorf("%w: %w", metadata.ErrUnavailable, context.Cause(ctx))
	}
	req := &pb.TxnRequest{Compare: compares(t.If), Success: requests(t.Then), Failure: requests(t.Else)}
	mutation := mutates(t.Then) || mutates(t.Else)
	res, err := c.kv.Txn(ctx, req)
	if err != nil {
		return metadata.TxnResult{}, translate(ctx, err, mutation)
	}
	out := metadata.TxnResult{Header: header(res.Header), Succeeded: res.Succeeded, Reads: make([][]metadata.KeyValue, len(res.Responses))}
	for i, r := range res.Responses {
		if rr := r.GetResponseRange(); rr != nil {
			out.Reads[i] = keyValues(rr.Kvs)
		}
	}
	return out, nil
}

func mutates(ops []metadata.Op) bool {
	for i := range ops {
		if ops[i].Kind != metadata.OpGet {
			return true
		}
	}
	return false
}

func requests(ops []metadata.Op) []*pb.RequestOp {
	out := make([]*pb.RequestOp, len(ops))
	for i := range ops {
		op := &ops[i]
		switch op.Kind {
		case metadata.OpPut:
			out[i] = &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{
				Key: []byte(op.Key), Value: op.Value, Lease: int64(op.Lease),
			}}}
		case metadata.OpDelete:
			out[i] = &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{
				Key: []byte(op.Key), RangeEnd: rangeEnd(op.End),
			}}}
		case metadata.OpGet:
			out[i] = &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{
				Key: []byte(op.Key), RangeEnd: rangeEnd(op.End), Limit: int64(op.Limit),
			}}}
		}
	}
	return out
}

// compares makes all of a transaction's at once: joint changes of groups have dozens.
func compares(all []metadata.Compare) []*pb.Compare {
	if len(all) == 0 {
		return nil
	}
	out, room := make([]*pb.Compare, len(all)), make([]pb.Compare, len(all))
	for i := range all {
		out[i] = &room[i]
		compare(&all[i], out[i])
	}
	return out
}

func compare(c *metadata.Compare, out *pb.Compare) {
	out.Key, out.RangeEnd = []byte(c.Key), rangeEnd(c.End)
	switch c.Relation {
	case metadata.Equal:
		out.Result = pb.Compare_EQUAL
	case metadata.NotEqual:
		out.Result = pb.Compare_NOT_EQUAL
	case metadata.Less:
		out.Result = pb.Compare_LESS
	case metadata.Greater:
		out.Result = pb.Compare_GREATER
	}
	switch c.Target {
	case metadata.TargetModRevision:
		out.Target, out.TargetUnion = pb.Compare_MOD, &pb.Compare_ModRevision{ModRevision: c.Number}
	case metadata.TargetCreateRevision:
		out.Target, out.TargetUnion = pb.Compare_CREATE, &pb.Compare_CreateRevision{CreateRevision: c.Number}
	case metadata.TargetVersion:
		out.Target, out.TargetUnion = pb.Compare_VERSION, &pb.Compare_Version{Version: c.Number}
	case metadata.TargetValue:
		out.Target, out.TargetUnion = pb.Compare_VALUE, &pb.Compare_Value{Value: c.Value}
	}
}

func rangeEnd(end string) []byte {
	if end == "" {
		return nil
	}
	return []byte(end)
}

func header(h *pb.ResponseHeader) metadata.Header {
	return metadata.Header{ClusterID: h.ClusterId, Revision: metadata.Revision(h.Revision)}
}

func keyValue(kv *mvccpb.KeyValue) metadata.KeyValue {
	return metadata.KeyValue{
		Key: string(kv.Key), Value: kv.Value, CreateRevision: metadata.Revision(kv.CreateRevision),
		ModRevision: metadata.Revision(kv.ModRevision), Version: kv.Version, Lease: metadata.LeaseID(kv.Lease),
	}
}

func keyValues(kvs []*mvccpb.KeyValue) []metadata.KeyValue {
	out := make([]metadata.KeyValue, len(kvs))
	for i, kv := range kvs {
		out[i] = keyValue(kv)
	}
	return out
}

// Range implements metadata.KV.
func (c *Client) Range(ctx context.Context, req metadata.RangeRequest) (metadata.RangeResult, error) {
	res, err := c.kv.Range(ctx, &pb.RangeRequest{
		Key: []byte(req.Key), RangeEnd: rangeEnd(req.End), Revision: int64(req.At), Limit: int64(req.Limit),
		MinModRevision: int64(req.MinModRevision), KeysOnly: req.KeysOnly, CountOnly: req.CountOnly,
	})
	if err != nil {
		return metadata.RangeResult{}, translate(ctx, err, false)
	}
	return metadata.RangeResult{Header: header(res.Header), KVs: keyValues(res.Kvs), More: res.More, Count: res.Count}, nil
}

// Grant implements metadata.KV.
func (c *Client) Grant(ctx context.Context, ttl time.Duration) (metadata.LeaseID, time.Duration, error) {
	seconds := int64((ttl + time.Second - 1) / time.Second)
	res, err := c.lease.LeaseGrant(clientv3.WithRequireLeader(ctx), &pb.LeaseGrantRequest{TTL: max(1, seconds)})
	if err != nil {
		return 0, 0, translate(ctx, err, true)
	}
	return metadata.LeaseID(res.ID), time.Duration(res.TTL) * time.Second, nil
}

// KeepAlive implements metadata.KV. It is a stream of one request: the client library's own call spins while etcd is away.
func (c *Client) KeepAlive(ctx context.Context, id metadata.LeaseID) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.lease.LeaseKeepAlive(clientv3.WithRequireLeader(ctx))
	if err != nil {
		return translate(ctx, err, false)
	}
	if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(id)}); err != nil {
		// The stream is broken; Recv has the reason.
		if _, rerr := stream.Recv(); rerr != nil {
			err = rerr
		}
		return translate(ctx, err, false)
	}
	res, err := stream.Recv()
	if err != nil {
		return translate(ctx, err, false)
	}
	if res.TTL <= 0 {
		return fmt.Errorf("lease %x: %w", int64(id), metadata.ErrLeaseNotFound)
	}
	return nil
}

// Revoke implements metadata.KV.
func (c *Client) Revoke(ctx context.Context, id metadata.LeaseID) error {
	_, err := c.lease.LeaseRevoke(clientv3.WithRequireLeader(ctx), &pb.LeaseRevokeRequest{ID: int64(id)})
	if err = translate(ctx, err, true); errors.Is(err, metadata.ErrLeaseNotFound) {
		return nil
	}
	return err
}

// Status implements metadata.KV: that of the first member that answers.
func (c *Client) Status(ctx context.Context) (metadata.Status, error) {
	var last error
	for _, e := range c.c.Endpoints() {
		st, err := c.c.Status(ctx, e)
		if err != nil {
			last = err
			continue
		}
		out := metadata.Status{
			ClusterID: st.Header.ClusterId, Revision: metadata.Revision(st.Header.Revision), Version: st.Version,
			DBSize: st.DbSize, DBSizeInUse: st.DbSizeInUse, Alarms: st.Errors,
		}
		return out, nil
	}
	return metadata.Status{}, translate(ctx, last, false)
}

// Compact implements metadata.KV.
func (c *Client) Compact(ctx context.Context, rev metadata.Revision) error {
	_, err := c.kv.Compact(ctx, &pb.CompactionRequest{Revision: int64(rev)})
	if err = translate(ctx, err, true); errors.Is(err, metadata.ErrCompacted) {
		return nil
	}
	return err
}

// Close implements metadata.KV.
func (c *Client) Close() error {
	if c.local != nil {
		c.local.Close()
	}
	if err := c.c.Close(); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("closing the etcd client: %w", err)
	}
	return nil
}
