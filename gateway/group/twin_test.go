// SPDX-License-Identifier: Apache-2.0

package group

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// twin is the protocol once more, without anything that makes it quick: no maps beside the list of members, no counters, no
// memory of the next deadline. It looks at everything in every step and says what each request is answered.
type twin struct {
	now      time.Time
	cfg      Config
	state    State
	kind     string
	protocol string
	gen      Generation
	leader   string
	members  []*twinMember
	pending  map[string]time.Time
	gather   time.Time // end of the gathering
	first    bool      // an empty group gathers
	grown    bool
	left     time.Duration
	syncBy   time.Time
	answers  map[Token]string
}

type twinMember struct {
	id, instance       string
	session, rebalance time.Duration
	protocols          []string
	join, sync         Token
	fresh, unsynced    bool
	expires            time.Time
	assignment         string
}

func (w *twin) member(id string) *twinMember {
	for _, m := range w.members {
		if m.id == id {
			return m
		}
	}
	return nil
}

func (w *twin) instance(name string) *twinMember {
	for _, m := range w.members {
		if name != "" && m.instance == name {
			return m
		}
	}
	return nil
}

func (w *twin) find(id, instance string) (*twinMember, error) {
	if instance != "" {
		switch m := w.instance(instance); {
		case m == nil:
			return nil, ErrUnknownMember
		case m.id != id:
			return nil, ErrFencedInstance
		default:
			return m, nil
		}
	}
	if m := w.member(id); m != nil {
		return m, nil
	}
	return nil, ErrUnknownMember
}

func (w *twin) answer(t *Token, text string) {
	if *t != 0 {
		w.answers[*t] = text
		*t = 0
	}
}

func (w *twin) drop(m *twinMember) {
	w.answer(&m.join, ErrUnknownMember.Error())
	w.answer(&m.sync, ErrUnknownMember.Error())
	w.members = slices.DeleteFunc(w.members, func(x *twinMember) bool { return x == m })
	if w.leader == m.id {
		w.leader = ""
		if len(w.members) > 0 {
			w.leader = w.members[0].id
		}
	}
}

func (w *twin) touch(m *twinMember) {
	m.expires = w.now.Add(m.session)
	if m.fresh {
		m.expires = w.now.Add(newMemberTimeout)
	}
}

func (w *twin) longest() (d time.Duration) {
	for _, m := range w.members {
		d = max(d, m.rebalance)
	}
	return d
}

func (w *twin) begin() {
	if w.state != Preparing {
		for _, m := range w.members {
			if w.state == Completing {
				m.assignment = ""
				w.answer(&m.sync, ErrRebalance.Error())
			}
			m.unsynced = false
		}
		w.first = w.state == Empty
		w.grown, w.syncBy = false, time.Time{}
		if w.first {
			w.left = max(w.longest()-w.cfg.InitialDelay, 0)
			w.gather = w.now.Add(w.cfg.InitialDelay)
		} else {
			w.gather = w.now.Add(w.longest())
		}
		w.state = Preparing
	}
}

// settle completes what is complete or due, as often as it takes.
func (w *twin) settle() {
	for w.state == Preparing {
		all := true
		for _, m := range w.members {
			all = all && m.join != 0
		}
		due := !w.now.Before(w.gather)
		if !(due || all && !w.first && len(w.pending) == 0) {
			return
		}
		if due && w.first && w.grown && w.left > 0 {
			d := min(w.cfg.InitialDelay, w.left)
			w.grown, w.left, w.gather = false, w.left-d, w.now.Add(d)
			continue
		}
		w.complete()
		if w.state == Preparing && !w.now.Before(w.gather) {
			return
		}
	}
}

func (w *twin) complete() {
	for _, m := range slices.Clone(w.members) {
		if m.join == 0 && m.instance == "" {
			w.drop(m)
		}
	}
	if len(w.members) == 0 {
		w.gen++
		w.state, w.protocol, w.leader, w.first = Empty, "", "", false
		return
	}
	if l := w.member(w.leader); l == nil || l.join == 0 {
		i := slices.IndexFunc(w.members, func(m *twinMember) bool { return m.join != 0 })
		if i < 0 {
			w.gather = w.now.Add(w.longest())
			return
		}
		w.leader = w.members[i].id
	}
	w.gen++
	w.state, w.first, w.protocol = Completing, false, w.choose()
	for _, m := range w.members {
		m.fresh, m.unsynced = false, true
		w.touch(m)
		w.answer(&m.join, w.joined(m))
	}
	w.syncBy = w.now.Add(w.longest())
}

func (w *twin) joined(m *twinMember) string {
	s := fmt.Sprintf("%s in %d by %s, leader %s", m.id, w.gen, w.protocol, w.leader)
	if m.id == w.leader {
		for _, x := range w.members {
			s += " " + x.id
		}
	}
	return s
}

func (w *twin) common() (out []string) {
	for _, name := range []string{"range", "sticky"} {
		if !slices.ContainsFunc(w.members, func(m *twinMember) bool { return !slices.Contains(m.protocols, name) }) {
			out = append(out, name)
		}
	}
	return out
}

func (w *twin) choose() string {
	common := w.common()
	votes, order := map[string]int{}, []string{}
	for _, m := range w.members {
		for _, p := range m.protocols {
			if slices.Contains(common, p) {
				votes[p]++
				order = append(order, p)
				break
			}
		}
	}
	best := order[0]
	for _, p := range order {
		if votes[p] > votes[best] {
			best = p
		}
	}
	return best
}

func (w *twin) join(r *JoinRequest) {
	instance, names := "", []string{}
	if r.Instance != nil {
		instance = *r.Instance
	}
	for _, p := range r.Protocols {
		names = append(names, p.Name)
	}
	waiting := 0
	for _, m := range w.members {
		if m.join != 0 {
			waiting++
		}
	}
	m := w.member(r.MemberID)
	full := w.state == Preparing && !(m != nil && m.join != 0) && waiting >= w.cfg.MaxSize || (w.state == Completing || w.state == Stable) && m == nil && len(w.members) >= w.cfg.MaxSize
	fits := len(w.members) == 0
	if !fits && r.ProtocolType == w.kind {
		fits = slices.ContainsFunc(names, func(n string) bool { return slices.Contains(w.common(), n) })
	}
	refuse := func(err error) { t := r.Token; w.answer(&t, err.Error()) }
	set := func(m *twinMember) { m.session, m.rebalance, m.protocols = r.Session, r.Rebalance, names }
	admit := func(id string) {
		delete(w.pending, id)
		if len(w.members) == 0 {
			w.kind = r.ProtocolType
		}
		m := &twinMember{id: id, instance: instance, fresh: true, join: r.Token}
		set(m)
		w.touch(m)
		w.grown = w.grown || w.state == Preparing && w.first
		w.members = append(w.members, m)
		if w.leader == "" {
			w.leader = id
		}
		w.begin()
	}
	_, wasGiven := w.pending[r.MemberID]
	switch {
	case full:
		refuse(ErrFull)
	case !fits:
		refuse(ErrInconsistentProtocol)
	case r.MemberID == "" && w.instance(instance) != nil:
		m := w.instance(instance)
		w.answer(&m.join, ErrFencedInstance.Error())
		w.answer(&m.sync, ErrFencedInstance.Error())
		if w.leader == m.id {
			w.leader = r.NewID
		}
		m.id, m.unsynced = r.NewID, false
		set(m)
		w.touch(m)
		if w.state == Stable && w.choose() == w.protocol {
			t := r.Token
			w.answer(&t, w.joined(m))
			return
		}
		m.join = r.Token
		w.begin()
	case r.MemberID == "" && instance == "" && r.RequireID:
		w.pending[r.NewID] = w.now.Add(r.Session)
		refuse(ErrMemberIDRequired)
	case r.MemberID == "":
		admit(r.NewID)
	case wasGiven && instance == "":
		admit(r.MemberID)
	default:
		m, err := w.find(r.MemberID, instance)
		if err != nil {
			refuse(err)
			return
		}
		w.touch(m)
		if slices.Equal(m.protocols, names) && (w.state == Completing || w.state == Stable && m.id != w.leader) {
			t := r.Token
			w.answer(&t, w.joined(m))
			return
		}
		set(m)
		w.touch(m)
		w.answer(&m.join, ErrRebalance.Error())
		m.join = r.Token
		w.begin()
	}
}

func (w *twin) sync(r *SyncRequest) {
	instance := ""
	if r.Instance != nil {
		instance = *r.Instance
	}
	t := r.Token
	m, err := w.find(r.MemberID, instance)
	switch {
	case w.state == Empty:
		w.answer(&t, ErrUnknownMember.Error())
	case err != nil:
		w.answer(&t, err.Error())
	case r.Generation != w.gen:
		w.answer(&t, ErrIllegalGeneration.Error())
	case w.state == Preparing:
		w.answer(&t, ErrRebalance.Error())
	case w.state == Stable:
		m.unsynced = false
		w.touch(m)
		w.answer(&t, "has "+m.assignment)
	default:
		m.unsynced = false
		w.answer(&m.sync, ErrRebalance.Error())
		m.sync = t
		if m.id != w.leader {
			return
		}
		w.state = Stable
		for _, x := range w.members {
			x.assignment = string(r.Assignments[x.id])
			if x.sync != 0 {
				w.touch(x)
			}
			w.answer(&x.sync, "has "+x.assignment)
		}
	}
}

func (w *twin) heartbeat(id, instance string, gen Generation) error {
	m, err := w.find(id, instance)
	switch {
	case w.state == Empty:
		return ErrUnknownMember
	case err != nil:
		return err
	case gen != w.gen:
		return ErrIllegalGeneration
	}
	w.touch(m)
	if w.state == Preparing {
		return ErrRebalance
	}
	return nil
}

func (w *twin) leave(id, instance string) error {
	if _, ok := w.pending[id]; ok && instance == "" {
		delete(w.pending, id)
		return nil
	}
	m, err := w.find(id, instance)
	if id == "" && instance != "" {
		if m, err = w.instance(instance), nil; m == nil {
			err = ErrUnknownMember
		}
	}
	if err == nil {
		w.drop(m)
		w.begin()
	}
	return err
}

func (w *twin) tick() {
	maps.DeleteFunc(w.pending, func(_ string, until time.Time) bool { return !w.now.Before(until) })
	gone := false
	for _, m := range slices.Clone(w.members) {
		switch {
		case w.now.Before(m.expires):
		case !m.fresh && (m.join != 0 || m.sync != 0):
			w.touch(m)
		default:
			w.drop(m)
			gone = true
		}
	}
	if !w.syncBy.IsZero() && !w.now.Before(w.syncBy) {
		w.syncBy = time.Time{}
		for _, m := range slices.Clone(w.members) {
			if m.unsynced {
				w.drop(m)
				gone = true
			}
		}
	}
	if gone {
		w.begin()
	}
}

func text(o Output) string {
	switch {
	case o.Err != nil:
		return o.Err.Error()
	case o.Join != nil:
		s := fmt.Sprintf("%s in %d by %s, leader %s", o.Join.MemberID, o.Join.Generation, o.Join.Protocol, o.Join.Leader)
		for _, m := range o.Join.Members {
			s += " " + m.ID
		}
		return s
	default:
		return "has " + string(o.Sync.Assignment)
	}
}

// plain is a description as text, whatever its pointers are.
func plain(d Description) string {
	s := fmt.Sprint(d.State, d.Generation, d.ProtocolType, d.Protocol)
	for _, m := range d.Members {
		instance := "-"
		if m.Instance != nil {
			instance = "=" + *m.Instance
		}
		s += fmt.Sprintf("|%s %s %s %s %x %x", m.ID, instance, m.ClientID, m.Host, m.Metadata, m.Assignment)
	}
	return s
}

// run is the machine and its twin under the same steps.
type run struct {
	g       *Group
	w       *twin
	now     time.Time
	cfg     Config
	tokens  Token
	answers map[Token]string
	ids     []string // given out so far
}

func (r *run) token() Token { r.tokens++; return r.tokens }

func (r *run) check(t *rapid.T, step string) {
	for _, o := range r.g.Take() {
		if _, twice := r.answers[o.Token]; twice {
			t.Fatalf("%s: Q2: token %d is answered twice", step, o.Token)
		}
		if o.Durable != (o.Err == nil) {
			t.Fatalf("%s: Q5: %+v", step, o)
		}
		r.answers[o.Token] = text(o)
	}
	if !maps.Equal(r.answers, r.w.answers) {
		t.Fatalf("%s: answers %v\ntwin %v", step, r.answers, r.w.answers)
	}
	d := r.g.Describe()
	var ids, twins []string
	for _, m := range d.Members {
		ids = append(ids, m.ID+string(m.Assignment))
	}
	for _, m := range r.w.members {
		twins = append(twins, m.id+m.assignment)
	}
	if d.State != r.w.state || d.Generation != r.w.gen || r.g.leader != r.w.leader || r.g.protocol != r.w.protocol || !slices.Equal(ids, twins) || len(r.g.pending) != len(r.w.pending) {
		t.Fatalf("%s: %+v leader %s\ntwin: %+v", step, d, r.g.leader, *r.w)
	}
	if d.State != Empty && r.g.Next().IsZero() {
		t.Fatalf("%s: Q4: no deadline in state %s", step, d.State)
	}
	if d.State == Stable {
		again, err := Decode(r.g.Encode(), r.now)
		if err != nil || plain(again.Describe()) != plain(d) {
			t.Fatalf("%s: stored and loaded: %+v, %v, was %+v", step, again.Describe(), err, d)
		}
	}
}

// TestTwin compares the machine with its naive twin under random steps.
func TestTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		start := time.Unix(1000, 0)
		cfg := Config{
			MinSession: time.Second, MaxSession: time.Hour, MaxSize: rapid.IntRange(1, 6).Draw(t, "size"),
			InitialDelay: time.Duration(rapid.IntRange(0, 4).Draw(t, "delay")) * time.Second,
		}
		r := &run{g: New(start), w: &twin{now: start, cfg: cfg, pending: map[string]time.Time{}, answers: map[Token]string{}}, now: start, cfg: cfg, answers: map[Token]string{}, ids: []string{"nobody"}}
		for i := range rapid.IntRange(1, 60).Draw(t, "steps") {
			r.step(t, i)
		}
	})
}

func (r *run) step(t *rapid.T, i int) {
	id := rapid.SampledFrom(r.ids).Draw(t, "id")
	// Mostly the instance id that goes with the member.
	instance := ""
	if m := r.w.member(id); m != nil {
		instance = m.instance
	}
	if rapid.IntRange(0, 9).Draw(t, "otherInstance") == 0 {
		instance = rapid.SampledFrom([]string{"", "A", "B"}).Draw(t, "instance")
	}
	var named *string
	if instance != "" {
		named = &instance
	}
	gen := r.w.gen - Generation(rapid.SampledFrom([]int{0, 0, 0, 0, 1}).Draw(t, "behind"))
	verb := rapid.SampledFrom([]string{"new", "new", "rejoin", "rejoin", "sync", "sync", "sync", "heartbeat", "commit", "leave", "pass", "pass"}).Draw(t, "verb")
	step := fmt.Sprintf("step %d: %s %s/%s", i, verb, id, instance)
	switch verb {
	case "new", "rejoin":
		j := &JoinRequest{
			Token: r.token(), MemberID: id, Instance: named, NewID: fmt.Sprint("m", i), ProtocolType: rapid.SampledFrom([]string{"consumer", "consumer", "consumer", "connect"}).Draw(t, "type"),
			Session:   time.Duration(rapid.IntRange(1, 20).Draw(t, "session")) * time.Second,
			Rebalance: time.Duration(rapid.IntRange(1, 20).Draw(t, "rebalance")) * time.Second,
			RequireID: rapid.Bool().Draw(t, "requireID"), CanSkip: true,
		}
		if verb == "new" {
			j.MemberID, j.Instance = "", nil
			if v := rapid.SampledFrom([]string{"", "", "A", "B"}).Draw(t, "static"); v != "" {
				j.Instance = &v
			}
			r.ids = append(r.ids, j.NewID)
		}
		for _, name := range rapid.SampledFrom([][]string{{"range"}, {"range", "sticky"}, {"sticky", "range"}, {"sticky"}}).Draw(t, "protocols") {
			j.Protocols = append(j.Protocols, Protocol{Name: name})
		}
		r.w.join(j)
		r.g.Join(r.now, j, r.cfg)
	case "sync":
		s := &SyncRequest{Token: r.token(), MemberID: id, Instance: named, Generation: gen, Assignments: map[string][]byte{}}
		for _, x := range r.ids {
			s.Assignments[x] = fmt.Append(nil, "=", i)
		}
		r.w.sync(s)
		r.g.Sync(r.now, s)
	case "heartbeat":
		want := r.w.heartbeat(id, instance, gen)
		if got := r.g.Heartbeat(r.now, id, named, gen); !errors.Is(got, want) || (got == nil) != (want == nil) {
			t.Fatalf("%s: %v, twin %v", step, got, want)
		}
	case "commit":
		// A member of the current generation that has an assignment may commit, and nobody else (Q1).
		_, err := r.w.find(id, instance)
		got := r.g.MayCommit(Committer{MemberID: id, Instance: named, Generation: gen})
		if may := err == nil && gen == r.w.gen && r.w.state != Completing || gen < 0 && r.w.state == Empty; may != (got == nil) {
			t.Fatalf("%s: %v, twin says %v", step, got, may)
		}
	case "leave":
		want := r.w.leave(id, instance)
		if got := r.g.Leave(r.now, []Leaving{{MemberID: id, Instance: named}}, r.cfg)[0]; !errors.Is(got, want) || (got == nil) != (want == nil) {
			t.Fatalf("%s: %v, twin %v", step, got, want)
		}
	case "pass":
		for range rapid.IntRange(1, 25).Draw(t, "seconds") {
			r.now = r.now.Add(time.Second)
			r.w.now = r.now
			r.w.tick()
			r.w.settle()
			r.g.Tick(r.now, r.cfg)
			r.check(t, step)
		}
		return
	}
	r.w.settle()
	r.check(t, step)
}

// FuzzDecode: no stored value makes Decode panic or ask for memory that is not backed.
func FuzzDecode(f *testing.F) {
	g := New(time.Unix(0, 0))
	name := "A"
	g.Join(time.Unix(0, 0), &JoinRequest{Token: 1, NewID: "m", Instance: &name, ProtocolType: "consumer", Protocols: []Protocol{{"range", make([]byte, 2000)}}, Session: time.Second, Rebalance: time.Second},
		Config{MaxSession: time.Hour, MaxSize: 1})
	f.Add(g.Encode())
	f.Add(New(time.Unix(0, 0)).Encode())
	f.Fuzz(func(t *testing.T, value []byte) {
		now := time.Unix(0, 0)
		g, err := Decode(value, now)
		if err != nil {
			return
		}
		again, err := Decode(g.Encode(), now)
		if err != nil || plain(again.Describe()) != plain(g.Describe()) {
			t.Errorf("%+v becomes %+v, %v", g.Describe(), again.Describe(), err)
		}
	})
}
