package lab

import (
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/internal/servers/zookeeper"
)

// What the end of a wait costs on ZooKeeper.

var zkCostRows = []Row{{
	ID: "zk-herd", Store: ZooKeeper, Title: "all waiters watch the lock's node", job: stock, Class: Cost,
	Acquire: "create -e /R; if the node exists: watch /R, and again when it has gone", Release: "delete /R",
	Habit:   "one node as lock, or a queue in which every waiter watches the folder",
	Why:     "A releases, and the server tells all waiters. Each of them sends a create, and all but one are refused and set their watch again. The cost of a hand-over grows with the queue, and chance decides who is next.",
	How:     "a waiter watches the node before its own: a release wakes one waiter",
	unsound: herd, sound: herdUsers,
}}

// herdNames are the waiters.
var herdNames = []string{"B", "C", "D", "E", "F", "G", "H", "I", "J", "K", "L", "M"}

// packets returns how many packets of clients the server has received.
func (p *scenario) packets() int {
	c, err := zkDial(p.engine.(*zkEngine).addr)
	p.must(err)
	defer func() { _ = c.Close() }()
	text, err := zookeeper.Word(c, "mntr")
	p.must(err)
	_, rest, ok := strings.Cut(text, "zk_packets_received\t")
	if !ok {
		p.failf("mntr: %q", text)
	}
	n, _, _ := strings.Cut(rest, "\n")
	return int(number(strings.TrimSuffix(strings.TrimSpace(n), ".0")))
}

// herd is the release of a lock for which many wait.
func herd(p *scenario) {
	open := func(name string) session {
		s, err := p.engine.session(&client{scenario: p, name: name})
		p.must(err)
		return s
	}
	send := func(s session, command string) string {
		answer, err := s.send(p.ctx, command)
		p.must(err)
		return answer
	}
	a := open("A")
	send(a, "create -e /R A")
	p.rec.add(Event{Lane: "A", Kind: Thinks, Text: "holds the lock"})
	waiters := make([]session, len(herdNames))
	for i, name := range herdNames {
		waiters[i] = open(name)
		send(waiters[i], "create -e /R "+name)
		send(waiters[i], "watch /R")
	}
	p.show("%d clients wait, from B on: each has been refused, and has set a watch", len(waiters))
	before, began := p.packets(), time.Now()
	p.rec.add(Event{Lane: "A", Kind: Does, Text: "delete /R", Answer: send(a, "delete /R")})
	var all sync.WaitGroup
	winner := make(chan string, len(waiters))
	errs := make([]error, len(waiters))
	for i, s := range waiters {
		all.Go(func() {
			if _, errs[i] = s.send(p.ctx, "await /R"); errs[i] != nil {
				return
			}
			var answer string
			if answer, errs[i] = s.send(p.ctx, "create -e /R "+herdNames[i]); answer == "OK" {
				winner <- herdNames[i]
			} else if errs[i] == nil {
				_, errs[i] = s.send(p.ctx, "watch /R")
			}
		})
	}
	all.Wait()
	p.must(errors.Join(errs...))
	if len(winner) != 1 {
		p.failf("%d clients got the lock", len(winner))
	}
	p.rate = &Rate{Waiters: len(waiters), Requests: p.packets() - before, Window: time.Since(began), HandOver: true}
	p.rec.add(Event{Lane: <-winner, Kind: Thinks, Text: "happened to ask first: holds the lock"})
	p.show("measured at the server (mntr): %v; A's delete is one of them", p.rate)
}
