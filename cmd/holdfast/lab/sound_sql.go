package lab

import "github.com/holdfast-lock/holdfast/cmd/holdfast/internal/history"

// The schedules of the SQL rows, run with holdfast.

// thirdTries: A and B have both permits, and C tries to get one.
func thirdTries(p *scenario) {
	a, b, c := p.steady("A"), p.steady("B"), p.steady("C")
	ga, gb := a.acquires(), b.acquires()
	p.want(ga != nil && gb != nil, "A and B did not get the two permits")
	p.want(c.acquires() == nil, "C got a third permit")
	ga.ends()
	gc := c.acquires()
	p.want(gc != nil, "C did not get the permit of A")
	p.want(a.acquires() == nil, "A got a third permit")
	p.want(gb.releases() == nil && gc.releases() == nil, "a release failed")
	p.atRest(c)
}

// otherName: D holds another lock, and B tries.
func otherName(p *scenario) {
	d, b := p.steady("D"), p.steady("B")
	other, err := d.c.Mutex("order/51570").TryLock(p.ctx)
	p.must(err)
	d.rec.add(Event{Lane: "D", Kind: Does, Text: `TryLock of "order/51570"`, Answer: "granted"},
		history.Event{Kind: history.Granted, Client: "D", ID: "D0", Name: "order/51570", Token: other.Token()})
	g := b.triesFree()
	g.finishes()
	p.must(other.Release())
	p.atRest(b)
}
