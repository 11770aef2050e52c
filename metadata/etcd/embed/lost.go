// SPDX-License-Identifier: Apache-2.0

package embed

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
)

// emptyPath is asked of a peer URL. etcd has nothing there.
const emptyPath = "/varve/empty"

// emptyMember is the answer of a member that has no directory.
type emptyMember struct {
	Cluster string            `json:"cluster"` // Options.ClusterToken
	Name    string            `json:"name"`
	Peers   map[string]string `json:"peers"`
	Wants   string            `json:"wants"` // the member id that it drew, in hexadecimal
}

// empty is what this member answers while it has no directory.
func (o *Options) empty(wants types.ID) *emptyMember {
	return &emptyMember{Cluster: o.token(), Name: o.Name, Peers: o.Peers, Wants: wants.String()}
}

// fits tells whether the other was started as a member of our set, under a name.
func (o *Options) fits(other *emptyMember, name string) bool {
	return other.Cluster == o.token() && other.Name == name && maps.Equal(other.Peers, o.Peers)
}

// drawID draws the id of a new member. 0 is nobody.
func drawID() types.ID {
	var b [8]byte
	for {
		_, _ = rand.Read(b[:]) // it never fails
		if id := types.ID(binary.LittleEndian.Uint64(b[:])); id != 0 {
			return id
		}
	}
}

// answer is what one peer said.
type answer struct {
	from    string
	members []*membership.Member // of a running member
	empty   *emptyMember         // of one without a directory
}

// verdict is what a member without a directory makes of the answers.
type verdict int

const (
	tooFew verdict = iota // nothing is known
	makeAnew
	takePlace // of a cluster that is just being made
	waitForID // the directory was lost
	join
)

// judge decides by what the peers said. With join, the list is the members to join.
func (o *Options) judge(wants types.ID, answers []answer) (verdict, []*membership.Member) {
	lists, empties, listed, waiting := 0, 0, 0, 0
	var list []*membership.Member
	for _, a := range answers {
		if len(a.members) == 0 {
			if a.empty != nil && o.fits(a.empty, a.from) {
				empties++
			}
			continue
		}
		lists++
		list = a.members
		switch m := memberAt(a.members, o.Peers[o.Name]); {
		case m == nil:
		case m.ID == wants:
			listed++
		case m.Name != "" && len(m.ClientURLs) == 0: // one that was added later has neither until it has started
			waiting++
		}
	}
	switch {
	case lists == 0 && 2*(empties+1) > len(o.Peers):
		return makeAnew, nil
	case lists == 0:
		return tooFew, nil
	case listed == lists:
		return join, list
	case waiting == lists:
		return takePlace, nil
	}
	return waitForID, nil
}

func memberAt(members []*membership.Member, peer string) *membership.Member {
	for _, m := range members {
		if slices.Contains(m.PeerURLs, peer) {
			return m
		}
	}
	return nil
}

// arrive decides how a member of several starts that has no directory: as one of a new cluster (no list is returned), or as one more of those
// in the list. It answers others at listen meanwhile.
func (o *Options) arrive(ctx context.Context, listen string) (_ []*membership.Member, err error) {
	wants := drawID()
	stop, err := serveEmpty(listen, o.empty(wants))
	if err != nil {
		return nil, err
	}
	defer stop() // etcd takes the address next
	var last verdict
	var objection error
	var objected time.Time
	for first := true; ; first = false {
		answers := o.askPeers(ctx)
		v, list := o.judge(wants, answers)
		if first || v != last {
			o.tell(v, wants, answers)
		}
		last = v
		switch v {
		case join:
			return list, nil
		case takePlace:
			return nil, nil
		case waitForID:
			objection = nil // there is a cluster
		case makeAnew:
			err := o.mayMakeAnew(ctx)
			if err == nil {
				return nil, nil
			}
			if objection == nil {
				objected = time.Now()
			}
			objection = err
		}
		if objection != nil && time.Since(objected) > anewPatience {
			return nil, objection
		}
		select {
		case <-time.After(lookEvery):
		case <-ctx.Done():
			return nil, o.gaveUp(v, answers, context.Cause(ctx))
		}
	}
}

func (o *Options) mayMakeAnew(ctx context.Context) error {
	if o.Anew == nil {
		return nil
	}
	return o.Anew(ctx)
}

func (o *Options) tell(v verdict, wants types.ID, answers []answer) {
	log := o.log().With("member", o.Name, "answer", answering(answers), "members", len(o.Peers))
	switch v {
	case tooFew:
		log.Info("this etcd member has no directory yet: waiting for the others")
	case makeAnew, takePlace:
		log.Info("making a new etcd cluster with the others")
	case waitForID:
		log.Warn("the etcd members know this one, whose directory is empty: waiting until they have replaced it", "id", wants)
	case join:
		log.Warn("joining the etcd members as a new one in place of the one that was lost", "id", wants)
	}
}

// answering counts who said anything.
func answering(answers []answer) (n int) {
	for _, a := range answers {
		if len(a.members) > 0 || a.empty != nil {
			n++
		}
	}
	return n
}

// gaveUp says what was waited for in vain, and what to do.
func (o *Options) gaveUp(v verdict, answers []answer, cause error) error {
	var strange []string
	lists := 0
	for _, a := range answers {
		if len(a.members) > 0 {
			lists++
		}
		if a.empty != nil && !o.fits(a.empty, a.from) {
			strange = append(strange, o.Peers[a.from])
		}
	}
	switch {
	case len(strange) > 0:
		return fmt.Errorf("%s was started with another --cluster or --etcd-peers, which are the same on every member, or with a --node-id that is not the one it has there (%w)", strings.Join(strange, ", "), cause)
	case v == waitForID && 2*lists <= len(o.Peers):
		return fmt.Errorf("the directory of member %s was lost, and %d of %d members answer; a majority is needed to replace a lost member: start the others, "+
			"or restore etcd from a backup (%w)", o.Name, lists, len(o.Peers), cause)
	case v == waitForID:
		return fmt.Errorf("the directory of member %s was lost, and the %d members that answer did not replace it: their logs say why; "+
			"they need this --cluster and these --etcd-peers (%w)", o.Name, lists, cause)
	}
	return fmt.Errorf("%d of %d members were started, this one included: a majority is needed (%w)", answering(answers)+1, len(o.Peers), cause)
}

// askPeers asks all others at once.
func (o *Options) askPeers(ctx context.Context) []answer {
	var answers []answer
	for _, name := range slices.Sorted(maps.Keys(o.Peers)) {
		if name != o.Name {
			answers = append(answers, answer{from: name})
		}
	}
	var all sync.WaitGroup
	for i := range answers {
		a := &answers[i]
		all.Go(func() {
			if a.members, _ = askMembers(ctx, o.Peers[a.from]); len(a.members) == 0 {
				a.empty, _ = askEmpty(ctx, o.Peers[a.from])
			}
		})
	}
	all.Wait()
	return answers
}

// serveEmpty answers at an address that this member has no directory, until stop.
func serveEmpty(address string, e *emptyMember) (stop func(), err error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("binding the URL of this member: %w", err)
	}
	mux := http.NewServeMux()
	// A member that runs must not take this for an answer of etcd: to one, "not found" and "gone" mean something.
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "this member is starting", http.StatusServiceUnavailable)
	})
	mux.HandleFunc("GET "+emptyPath, func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(e) })
	server := &http.Server{Handler: mux, ReadTimeout: askTimeout, WriteTimeout: askTimeout}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l) // it ends with stop
	}()
	return func() {
		_ = server.Close()
		<-done
	}, nil
}

// peers is the client for questions to peers: directly, whatever proxy the environment names, as etcd does.
var peers = &http.Client{Transport: &http.Transport{IdleConnTimeout: time.Minute}, Timeout: askTimeout}

var errNoAnswer = errors.New("embedded etcd: no such answer")

// askMembers asks a running member for its list.
func askMembers(ctx context.Context, peer string) (members []*membership.Member, err error) {
	return members, ask(ctx, peer+"/members", &members)
}

// askEmpty asks whether a peer has no directory. A member that runs gives no such answer.
func askEmpty(ctx context.Context, peer string) (*emptyMember, error) {
	var e emptyMember
	if err := ask(ctx, peer+emptyPath, &e); err != nil {
		return nil, err
	}
	if e.Wants == "" {
		return nil, errNoAnswer
	}
	return &e, nil
}

func ask(ctx context.Context, url string, into any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := peers.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%w: %s", errNoAnswer, response.Status)
	}
	return json.NewDecoder(io.LimitReader(response.Body, maxAnswerBytes)).Decode(into)
}
