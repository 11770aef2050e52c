// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// reborn is the name of a topic that is deleted and created again and again. In the history each of its lives is a topic of its own:
// reborn1, reborn2 and so on.
const reborn = "reborn"

// relive gives the topic one life after the other and reads each by its topic id, the life before as well: what belongs to one must
// not be seen in another (S25).
func (l *load) relive() {
	own := conns{}
	defer own.close()
	var before []life
	for i := 1; l.producing.Err() == nil; i++ {
		now := life{p: part{fmt.Sprint(reborn, i), 0}}
		l.h.mu.Lock()
		l.h.unread[now.p] = true // it does not live until the end
		l.h.mu.Unlock()
		if l.live(own, &now) {
			before = append(before, now)
		}
		for _, b := range before[max(0, len(before)-2):] {
			l.visit(own, b)
		}
		sleep(l.producing, 2*time.Second)
		l.bury()
	}
}

// life is one life of the topic.
type life struct {
	p  part
	id [16]byte
}

// live creates the topic and writes some records, with a client that knows nothing of an earlier life. A fault may end it early.
func (l *load) live(own conns, now *life) bool {
	ctx, cancel := context.WithTimeout(l.producing, 10*time.Second)
	defer cancel()
	c, err := kgo.NewClient(kgo.SeedBrokers(l.c.bootstrap()...), kgo.DialTimeout(dialTimeout), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.RecordDeliveryTimeout(8*time.Second), kgo.ProduceRequestTimeout(3*time.Second))
	if err != nil {
		l.h.note("%v", err)
		return false
	}
	defer c.Close()
	if _, err := kadm.NewClient(c).CreateTopic(ctx, 1, nodes, nil, reborn); err != nil {
		return false // it exists still, or nobody answers
	}
	for now.id == [16]byte{} && ctx.Err() == nil {
		for n := place(1); n <= nodes; n++ {
			if topics, err := l.conn(own, n).metadata([]string{reborn}); err == nil && topics[reborn].id != now.id {
				now.id = topics[reborn].id
			}
		}
		sleep(ctx, 50*time.Millisecond)
	}
	for i := range 20 {
		id, at := fmt.Sprintf("%s-%d", now.p.topic, i), time.Now().UnixMilli()
		s := &send{id: id, p: now.p, order: i, timestamp: at, hash: hashOf([]byte(id))}
		l.h.invoke(s)
		r := &kgo.Record{Topic: reborn, Key: []byte(id), Value: []byte(id), Timestamp: time.UnixMilli(at)}
		c.Produce(ctx, r, func(r *kgo.Record, err error) {
			if err != nil {
				l.h.answer(s, unknown, -1, err)
			} else {
				l.h.answer(s, stored, r.Offset, nil)
			}
		})
	}
	_ = c.Flush(ctx) // what is not acknowledged by then is of unknown outcome
	return now.id != [16]byte{}
}

// visit reads a life from every node by its id. Whatever comes is in the history.
func (l *load) visit(own conns, of life) {
	for n := place(1); n <= nodes; n++ {
		f := &fetch{p: of.p, node: int(n), epoch: -1, invoked: l.h.now()}
		if l.conn(own, n).fetch(f, of.id, fetchBytes, 0) == nil {
			l.h.fetched(f)
		}
	}
}

func (l *load) bury() {
	ctx, cancel := context.WithTimeout(l.all, 5*time.Second)
	defer cancel()
	_, _ = kadm.NewClient(l.admin).DeleteTopic(ctx, reborn) // if it fails, the next life cannot begin, and it is tried again
}
