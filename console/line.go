package console

// line is a name in the graph: its grants, and the queue behind them.
type line struct {
	semaphore bool
	first     []*grip          // of each party
	own       map[*party]share // what each party has of the name
	all       share            // what all of them have
	stuck     share            // what stuck parties have
	wishes    []*wish          // in the order of the queue
}

// share is a part of the grants of a name.
type share struct{ grips, permits int }

func (s *share) add(o share) {
	s.grips += o.grips
	s.permits += o.permits
}

func newLine(semaphore bool) *line { return &line{semaphore: semaphore, own: map[*party]share{}} }

func (l *line) addGrip(x *grip) {
	x.party.holds = append(x.party.holds, x)
	own, known := l.own[x.party]
	if !known {
		x.first = true
		l.first = append(l.first, x)
	}
	one := share{1, x.h.Permits}
	own.add(one)
	l.own[x.party] = own
	l.all.add(one)
}

// addWish adds the next place of the queue. The grips must be there.
func (l *line) addWish(w *wish) {
	w.party.waits = append(w.party.waits, w)
	l.wishes = append(l.wishes, w)
	for _, x := range l.first {
		if p := x.party; p != w.party { // a process that waits for itself has several tasks
			p.behind = append(p.behind, w)
			p.known[w.party] = true
		}
	}
}

// grants reports whether w is granted if all parties that are not stuck let go. What its own party has
// is not in its way: another task of the party may let go.
func (l *line) grants(w *wish) bool {
	own := l.own[w.party]
	switch {
	case w.before != nil && w.before.blocked:
		return false
	case l.semaphore:
		return len(l.first) == 0 || l.all.permits-l.stuck.permits+own.permits >= w.need
	}
	return l.stuck.grips == own.grips
}

// reduce finds the parties that cannot go on, whatever the others do, and returns them. Its cost is
// that of the grants times the length of their queues: whoever writes the records must not be able to
// keep the console busy.
func (g *graph) reduce() (stuck []*party) {
	left := map[*party]int{} // wishes that are blocked
	for _, p := range g.parties {
		left[p] = len(p.waits)
		p.stuck = len(p.waits) > 0
	}
	for _, l := range g.lines {
		for p, own := range l.own {
			if p.stuck {
				l.stuck.add(own)
			}
		}
	}
	var freed []*party
	look := func(l *line) {
		for _, w := range l.wishes {
			if !w.blocked || !l.grants(w) {
				continue
			}
			w.blocked = false
			if left[w.party]--; left[w.party] == 0 {
				freed = append(freed, w.party)
			}
		}
	}
	for _, l := range g.lines {
		look(l)
	}
	for len(freed) > 0 {
		p := freed[len(freed)-1]
		freed = freed[:len(freed)-1]
		p.stuck = false
		for _, x := range p.holds {
			if l := x.line; x.first {
				l.stuck.add(share{-l.own[p].grips, -l.own[p].permits})
				look(l)
			}
		}
	}
	for _, p := range g.parties {
		if p.stuck {
			stuck = append(stuck, p)
		}
	}
	return stuck
}
