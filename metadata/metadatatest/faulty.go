// SPDX-License-Identifier: Apache-2.0

package metadatatest

import (
	"context"
	"sync"
	"time"

	"github.com/varve/varve/metadata"
)

// Fate is what happens to a transaction on its way.
type Fate int

// The fates of a transaction.
const (
	Well        Fate = iota
	LostRequest      // never executed; the caller cannot know
	LostReply        // executed; the caller cannot know
	Late             // the caller is left alone at once, and it is executed after Faulty.Delay
	Refused          // never executed, and the caller knows
)

// Faulty is a KV on an unreliable line: Decide says what becomes of each mutating transaction. Reads are well.
type Faulty struct {
	metadata.KV
	Delay time.Duration

	mu     sync.Mutex
	decide func(metadata.Txn) Fate
	late   sync.WaitGroup
}

// SetDecide replaces the decision; nil: all is well.
func (f *Faulty) SetDecide(fn func(metadata.Txn) Fate) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.decide = fn
}

// Settle waits for what is still on its way.
func (f *Faulty) Settle() { f.late.Wait() }

// Txn implements metadata.KV.
func (f *Faulty) Txn(ctx context.Context, t metadata.Txn) (metadata.TxnResult, error) {
	f.mu.Lock()
	fate := Well
	if f.decide != nil && len(t.If) > 0 {
		fate = f.decide(t)
	}
	f.mu.Unlock()
	switch fate {
	case LostRequest:
		return metadata.TxnResult{}, metadata.ErrUnknown
	case Refused:
		return metadata.TxnResult{}, metadata.ErrUnavailable
	case Late:
		f.late.Go(func() {
			time.Sleep(f.Delay)
			_, _ = f.KV.Txn(context.WithoutCancel(ctx), t) // nobody hears of it
		})
		return metadata.TxnResult{}, metadata.ErrUnknown
	case LostReply:
		if _, err := f.KV.Txn(ctx, t); err != nil {
			return metadata.TxnResult{}, err
		}
		return metadata.TxnResult{}, metadata.ErrUnknown
	}
	return f.KV.Txn(ctx, t)
}
