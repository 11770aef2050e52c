// SPDX-License-Identifier: Apache-2.0

package embed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
)

// trio is a cluster of three members in this process.
type trio struct {
	t       *testing.T
	dir     string
	peers   map[string]string
	running map[string]*Server
}

func newTrio(t *testing.T) *trio {
	c := &trio{t: t, dir: t.TempDir(), peers: map[string]string{}, running: map[string]*Server{}}
	for _, name := range []string{"1", "2", "3"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		c.peers[name] = "http://" + l.Addr().String()
	}
	t.Cleanup(func() { c.stop("1", "2", "3") })
	return c
}

func (c *trio) dirOf(name string) string { return filepath.Join(c.dir, name) }

// try starts one member.
func (c *trio) try(name string, within time.Duration, anew func(context.Context) error) (*Server, error) {
	ctx, cancel := context.WithTimeout(c.t.Context(), within)
	defer cancel()
	log := slog.New(slog.NewTextHandler(c.t.Output(), nil)).With("at", name)
	return Start(ctx, c.dirOf(name), Options{Peers: c.peers, Name: name, UnsafeNoFsync: true, Logger: log, Anew: anew})
}

// start starts members at once and waits until they serve.
func (c *trio) start(names ...string) {
	c.t.Helper()
	var all sync.WaitGroup
	servers, errs := make([]*Server, len(names)), make([]error, len(names))
	for i, name := range names {
		all.Go(func() { servers[i], errs[i] = c.try(name, time.Minute, nil) })
	}
	all.Wait()
	for i, name := range names {
		if errs[i] == nil {
			c.running[name] = servers[i]
		}
	}
	if err := errors.Join(errs...); err != nil {
		c.t.Fatal(err)
	}
}

func (c *trio) stop(names ...string) {
	var all sync.WaitGroup
	for _, name := range names {
		if s := c.running[name]; s != nil {
			all.Go(s.Close)
			delete(c.running, name)
		}
	}
	all.Wait()
}

func (c *trio) lose(name string) {
	c.t.Helper()
	c.stop(name)
	if err := os.RemoveAll(c.dirOf(name)); err != nil {
		c.t.Fatal(err)
	}
}

func (c *trio) put(at, key string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 20*time.Second)
	defer cancel()
	put := &pb.PutRequest{Key: []byte(key), Value: []byte(key)}
	_, err := c.running[at].Inside().Txn(ctx, &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: put}}}})
	if err != nil {
		c.t.Fatalf("%s at %s: %v", key, at, err)
	}
}

func (c *trio) want(at string, keys ...string) {
	c.t.Helper()
	for _, key := range keys {
		r, err := c.running[at].Inside().Range(c.t.Context(), &pb.RangeRequest{Key: []byte(key)})
		if err != nil || len(r.Kvs) != 1 {
			c.t.Errorf("%s at %s: %v, %v", key, at, r, err)
		}
	}
}

// listed is the id that one member knows of another, 0 for none.
func (c *trio) listed(at, name string) types.ID {
	if m := memberAt(c.running[at].etcd.Server.Cluster().Members(), c.peers[name]); m != nil {
		return m.ID
	}
	return 0
}

func (c *trio) id(name string) types.ID { return c.running[name].etcd.Server.MemberID() }

// leader waits until one of the members leads.
func (c *trio) leader() *Server {
	c.t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		for _, s := range c.running {
			if s.etcd.Server.Leader() == s.etcd.Server.MemberID() {
				return s
			}
		}
	}
	c.t.Fatal("no member leads")
	return nil
}

// TestLostMember: a member whose directory is gone comes back by itself, as another one, again and again, with unchanged peers; so do all of them
// at a restart, and an old directory of it does not.
func TestLostMember(t *testing.T) {
	t.Parallel()
	c := newTrio(t)
	c.start("1", "2", "3")
	c.put("1", "a")
	was := c.id("3")
	c.stop("3")
	if err := os.Rename(c.dirOf("3"), c.dirOf("old")); err != nil {
		t.Fatal(err)
	}
	c.put("1", "b")
	c.start("3")
	c.want("3", "a", "b")
	first := c.id("3")
	if first == was {
		t.Errorf("it goes on as %s, which has voted", was)
	}

	// A second time, with a start that is cut short when it has been added already.
	c.lose("3")
	short := Options{Peers: c.peers, Name: "3"}
	stop, err := serveEmpty(short.PeerAddress(), short.empty(5))
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); c.listed("1", "3") != 5; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			stop()
			t.Fatal("the others do not add the member that says that it has no directory")
		}
	}
	stop()
	c.start("3")
	c.want("3", "a", "b")
	if id := c.id("3"); id == first || id == was || id == 5 {
		t.Errorf("%s twice", id)
	}
	if n := len(c.running["1"].etcd.Server.Cluster().Members()); n != 3 {
		t.Errorf("%d members", n)
	}

	// All restart, and the one that is new is needed for a majority.
	c.put("3", "c")
	c.stop("1", "2", "3")
	c.start("1", "3")
	c.want("3", "a", "b", "c")
	c.put("1", "d")
	c.start("2")
	c.want("2", "d")

	c.stop("3")
	if err := errors.Join(os.RemoveAll(c.dirOf("3")), os.Rename(c.dirOf("old"), c.dirOf("3"))); err != nil {
		t.Fatal(err)
	}
	if s, err := c.try("3", 20*time.Second, nil); !errors.Is(err, ErrReplaced) {
		t.Errorf("the directory of before came to serve: %v, %v", s, err)
	}
}

// TestLostWhileAllWereDown: a member that starts ahead of the others after a power failure must not take the cluster for one that is to be made.
func TestLostWhileAllWereDown(t *testing.T) {
	t.Parallel()
	c := newTrio(t)
	c.start("1", "2", "3")
	c.put("1", "a")
	was := c.id("2")
	c.stop("1", "3")
	c.lose("2")
	_, err := c.try("2", 2*time.Second, func(context.Context) error {
		t.Error("it is about to make a cluster")
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), "1 of 3 members were started") {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(c.dirOf("2")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the start left its directory: %v", err)
	}
	c.start("2", "1", "3")
	c.want("2", "a")
	if c.id("2") == was {
		t.Error("it goes on as the one that was lost")
	}
}

// TestLostWithoutMajority: nobody is replaced by one of three.
func TestLostWithoutMajority(t *testing.T) {
	t.Parallel()
	c := newTrio(t)
	c.start("1", "2", "3")
	c.put("1", "a")
	c.stop("2")
	c.lose("3")
	_, err := c.try("3", 4*time.Second, nil)
	if err == nil || !strings.Contains(err.Error(), "1 of 3 members answer; a majority is needed to replace a lost member") {
		t.Errorf("%v", err)
	}
	if n := len(c.running["1"].etcd.Server.Cluster().Members()); n != 3 {
		t.Errorf("%d members", n)
	}
	c.start("2", "3")
	c.want("3", "a")
}

// TestAnewMayBeRefused: whoever knows that there was a cluster keeps the members from making one, and nothing is left of the start.
func TestAnewMayBeRefused(t *testing.T) {
	t.Parallel()
	c := newTrio(t)
	there := errors.New("there was one")
	var all sync.WaitGroup
	for name := range c.peers {
		all.Go(func() {
			if _, err := c.try(name, 20*time.Second, func(context.Context) error { return there }); !errors.Is(err, there) {
				t.Errorf("%s: %v", name, err)
			}
			if _, err := os.Stat(c.dirOf(name)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s left its directory: %v", name, err)
			}
		})
	}
	all.Wait()
}

// TestPeersOfOthers: etcd goes by its directory, whatever peers a start is for.
func TestPeersOfOthers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	alone := Options{UnsafeNoFsync: true}
	s, err := Start(t.Context(), dir, alone)
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	c := newTrio(t)
	c.dir = dir
	if err := os.Rename(dir, dir+"-1"); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Rename(dir+"-1", c.dirOf("1"))); err != nil {
		t.Fatal(err)
	}
	_, err = c.try("1", 20*time.Second, nil)
	if !errors.Is(err, ErrOtherPeers) || !strings.Contains(err.Error(), "of its own") || !strings.Contains(err.Error(), c.peers["2"]) {
		t.Errorf("the directory of a single member: %v", err)
	}
	s, err = Start(t.Context(), c.dirOf("1"), alone)
	if err != nil {
		t.Fatal(err) // the refused start did it no harm
	}
	s.Close()
}

// TestCompare: sets of peers, stored and asked for.
func TestCompare(t *testing.T) {
	peers := map[string]string{"1": "http://a:1", "2": "http://b:1", "3": "http://c:1"}
	for name, tc := range map[string]struct {
		stored string
		peers  map[string]string
		says   string
	}{
		"same":              {"http://a:1 http://b:1 http://c:1", peers, ""},
		"being replaced":    {"http://a:1 http://b:1", peers, ""},
		"nothing yet":       {"", peers, ""},
		"alone":             {"http://127.0.0.1:0", nil, ""},
		"alone, now three":  {"http://127.0.0.1:0", peers, "of its own"},
		"three, now alone":  {"http://a:1 http://b:1 http://c:1", nil, "http://b:1"},
		"one of three":      {"http://a:1", peers, "http://c:1"},
		"another host":      {"http://a:1 http://b:1 http://d:1", peers, "http://d:1"},
		"more than wanted":  {"http://a:1 http://b:1 http://c:1 http://d:1", peers, "http://d:1"},
		"of the other node": {"http://b:1 http://a:1 http://c:1", peers, "directory of the member at http://b:1"},
	} {
		t.Run(name, func(t *testing.T) {
			var stored []*membership.Member
			for i, url := range strings.Fields(tc.stored) {
				stored = append(stored, &membership.Member{ID: types.ID(i + 1), RaftAttributes: membership.RaftAttributes{PeerURLs: []string{url}}})
			}
			o := Options{Peers: tc.peers, Name: "1"}
			err := o.compare("dir", 1, stored) // the first in the list is the directory's
			if tc.says == "" && err != nil || tc.says != "" && (!errors.Is(err, ErrOtherPeers) || !strings.Contains(err.Error(), tc.says)) {
				t.Error(err)
			}
		})
	}
}

// TestJudge: what a member without a directory makes of what the others say.
func TestJudge(t *testing.T) {
	peers := map[string]string{"1": "http://a:1", "2": "http://b:1", "3": "http://c:1"}
	o := Options{Peers: peers, Name: "3"}
	other := Options{Peers: map[string]string{"2": "http://b:1", "3": "http://c:1"}, Name: "2"}
	list := func(mine ...*membership.Member) []*membership.Member {
		m := &membership.Member{ID: 1, RaftAttributes: membership.RaftAttributes{PeerURLs: []string{"http://a:1"}}}
		return append(mine, m)
	}
	me := func(id types.ID, name string, urls ...string) *membership.Member {
		return &membership.Member{
			ID: id, RaftAttributes: membership.RaftAttributes{PeerURLs: []string{"http://c:1"}}, Attributes: membership.Attributes{Name: name, ClientURLs: urls},
		}
	}
	const wants = 77
	for name, tc := range map[string]struct {
		one, two answer
		want     verdict
	}{
		"nobody":                   {answer{}, answer{}, tooFew},
		"two are empty":            {answer{empty: (&Options{Peers: peers, Name: "1"}).empty(5)}, answer{}, makeAnew},
		"empty, of another set":    {answer{}, answer{empty: other.empty(5)}, tooFew},
		"empty, of another name":   {answer{empty: (&Options{Peers: peers, Name: "2"}).empty(5)}, answer{}, tooFew},
		"empty, and one that runs": {answer{members: list(me(9, "3", "http://x"))}, answer{empty: (&Options{Peers: peers, Name: "2"}).empty(5)}, waitForID},
		"being made":               {answer{members: list(me(9, "3"))}, answer{}, takePlace},
		"was added, not started":   {answer{members: list(me(9, ""))}, answer{}, waitForID},
		"being replaced":           {answer{members: list()}, answer{}, waitForID},
		"one has not heard yet":    {answer{members: list(me(wants, ""))}, answer{members: list(me(9, "3", "http://x"))}, waitForID},
		"one has never heard":      {answer{members: list(me(9, "3", "http://x"))}, answer{members: list(me(9, "3"))}, waitForID},
		"replaced":                 {answer{members: list(me(wants, ""))}, answer{}, join},
	} {
		t.Run(name, func(t *testing.T) {
			tc.one.from, tc.two.from = "1", "2"
			if got, _ := o.judge(wants, []answer{tc.one, tc.two}); got != tc.want {
				t.Errorf("%d, want %d", got, tc.want)
			}
		})
	}
}

// TestNoMemberIsReplacedThatRuns: an answer counts only from the peer's own URL, by name and set.
func TestNoMemberIsReplacedThatRuns(t *testing.T) {
	t.Parallel()
	c := newTrio(t)
	c.start("1", "2")
	leader := c.leader()
	for _, name := range []string{"1", "2"} {
		if why := leader.replace(t.Context(), name); why != "" {
			t.Errorf("%s, which runs: %s", name, why)
		}
	}
	strange := Options{Peers: map[string]string{"3": c.peers["3"]}, Name: "3"}
	stop, err := serveEmpty(strange.PeerAddress(), strange.empty(5))
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	if why := leader.replace(t.Context(), "3"); !strings.Contains(why, "another --cluster") {
		t.Errorf("a stranger at the URL: %q", why)
	}
	if got := fmt.Sprint(len(leader.etcd.Server.Cluster().Members())); got != "3" {
		t.Errorf("%s members", got)
	}
}
