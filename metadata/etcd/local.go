// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// local asks a member in this process until it is closed. Then nothing of it is under way any more: the member must not be stopped under
// a request, which no connection would keep from it.
type local struct {
	kv     KVServer
	closed context.Context
	close  context.CancelFunc
	calls  sync.RWMutex // held by requests; Close waits for them
}

func newLocal(kv KVServer) *local {
	l := &local{kv: kv}
	l.closed, l.close = context.WithCancel(context.Background())
	return l
}

// Close ends what is under way.
func (l *local) Close() {
	l.close()
	l.calls.Lock()
	defer l.calls.Unlock()
}

// enter begins a request, which ends with the context that it returns.
func (l *local) enter(ctx context.Context) (_ context.Context, leave func(), _ error) {
	l.calls.RLock()
	if err := l.closed.Err(); err != nil {
		l.calls.RUnlock()
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(l.closed, cancel)
	return ctx, func() {
		stop()
		cancel()
		l.calls.RUnlock()
	}, nil
}

// Range implements KVServer.
func (l *local) Range(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	ctx, leave, err := l.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	return l.kv.Range(ctx, r)
}

// Txn implements KVServer.
func (l *local) Txn(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	ctx, leave, err := l.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	return l.kv.Txn(ctx, r)
}

// Compact implements KVServer.
func (l *local) Compact(ctx context.Context, r *pb.CompactionRequest) (*pb.CompactionResponse, error) {
	ctx, leave, err := l.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	return l.kv.Compact(ctx, r)
}
