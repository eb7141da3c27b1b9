//go:build unix

package main_test

import (
	"os"
	"strings"
	"syscall"
	"testing"
)

// A lock goes from a keeper to another process by a ticket, with the same token, and nobody gets it
// in between. A ticket is good for one adoption.
func TestHandOffAndAdopt(t *testing.T) {
	onStores(t, "zookeeper", func(b *bench) {
		b = b.runtimeDir()
		v := b.keep("a")
		pid := keeperOf(b, v)
		waiter := b.start("run", "a", "--", "sh", "-c", "echo $HOLDFAST_TOKEN >$D/next")
		b.waiting("a", 1)
		ticket, _ := b.want(0, "handoff", "a")
		ticket = strings.TrimSpace(ticket)
		if _, stderr := b.want(76, "check", "a"); !strings.Contains(stderr, "a was handed off") {
			b.Error(stderr)
		}
		b.want(77, "handoff", "a")
		file := b.put("ticket", ticket+"\n")
		p := b.with("HOLDFAST_TICKET=another").start("adopt", "--ticket-file", file, "--note", "adopted", "--", "sh", "-c",
			"env >$D/env; echo >>$D/env; until [ -e $D/end ]; do sleep 0.05; done; exit 7")
		env := b.parse(b.file("env"))
		if env["HOLDFAST_TOKEN"] != v["HOLDFAST_TOKEN"] || env["HOLDFAST_LOCK"] != "a" || env["HOLDFAST_TICKET"] != "" {
			b.Errorf("%v, hold had %v", env, v)
		}
		for _, args := range [][]string{{"adopt", ticket}, {"adopt", "--ticket-file", "ticket"}, {"adopt"}} {
			_, stderr := b.with("HOLDFAST_TICKET="+ticket).want(77, append(args, "--", "touch", "twice")...)
			if !strings.Contains(stderr, "somebody has adopted it before; a ticket is good for one adoption, while its hold lasts; "+
				"now it is held by ") || strings.Contains(stderr, ticket) || strings.Contains(stderr, "doctor") {
				b.Error(stderr)
			}
		}
		b.none("twice")
		b.until("the keeper knows that the offer is over", func() bool {
			_, stderr := b.want(76, "check", "a")
			return strings.Contains(stderr, "a was handed off, and was adopted, or has ended since")
		})
		b.want(77, "handoff", "a")
		if out, _ := b.want(0, "release", "a"); !strings.Contains(out, "was handed off, and was adopted") ||
			!strings.Contains(out, "nothing is left to release") {
			b.Error(out)
		}
		b.ends(pid)
		b.want(76, "release", "a")
		b.waiting("a", 1)
		b.touch("end")
		if code := p.code(); code != 7 {
			b.Errorf("exit code %d: %s", code, p.err.String())
		}
		if code := waiter.code(); code != 0 || !later(b.file("next"), v["HOLDFAST_TOKEN"]) {
			b.Errorf("the waiter: exit code %d, token %s", code, b.file("next"))
		}
	})
}

// A release right after an adoption, which the keeper does not know of yet, says that nothing is left
// to release, and so does one after the adopter has released. A new hold of the name is the one that
// the name means.
func TestReleaseAfterAdoption(t *testing.T) {
	b := newBench(t).runtimeDir()
	const said = "nothing is left to release"
	v := b.keep("--ttl", "1m", "a") // renewals tell the keeper of the adoption, and are 20 s apart
	pid := keeperOf(b, v)
	ticket, _ := b.want(0, "handoff", "a")
	p := b.start("adopt", strings.TrimSpace(ticket), "--", "sh", "-c",
		"echo >$D/adopted; until [ -e $D/end ]; do sleep 0.05; done")
	b.file("adopted")
	if out, _ := b.want(0, "release", "a"); !strings.Contains(out, said) {
		t.Error(out)
	}
	b.ends(pid)
	b.want(75, "run", "-n", "a", "--", "true") // the adopter has it still
	b.touch("end")
	p.code()

	old := b.with(b.keep("--ttl", brokenSoon.String(), "a").env()...)
	ticket, _ = b.want(0, "handoff", "a")
	b.want(0, "adopt", strings.TrimSpace(ticket), "--", "true")
	b.until("the keeper knows", func() bool {
		_, stderr := b.want(76, "check", "a")
		return strings.Contains(stderr, "has ended since")
	})
	b.keep("a")
	b.want(0, "check", "a")
	if out, _ := old.want(0, "release"); !strings.Contains(out, said) {
		t.Error(out)
	}
	if out, _ := b.want(0, "release", "a"); !strings.HasPrefix(out, "released: a, token ") {
		t.Error(out)
	}
}

// An offer that nobody adopts ends with the hold, and by a release.
func TestOfferEnds(t *testing.T) {
	b := newBench(t).runtimeDir()
	v := b.keep("a")
	pid := keeperOf(b, v)
	ticket, _ := b.want(0, "handoff", "a")
	b.want(0, "release", "a")
	b.ends(pid)
	if _, stderr := b.want(77, "adopt", strings.TrimSpace(ticket), "--", "true"); !strings.HasSuffix(stderr,
		"; now nobody holds it\n") {
		t.Error(stderr)
	}
	b.want(0, "run", "-n", "a", "--", "true")

	// The hold must not end before it is offered.
	pid = keeperOf(b, b.keep("--max-hold", "5s", "a"))
	b.want(0, "handoff", "a")
	b.ends(pid)
	b.want(0, "run", "-n", "a", "--", "true")
	b.want(76, "release", "a")
}

// The command under an adopted lock is ended when the lock is lost, and its input is what follows
// the ticket.
func TestAdoptedIsLost(t *testing.T) {
	b := newBench(t).runtimeDir()
	v := b.keep("--ttl", brokenSoon.String(), "a")
	ticket, _ := b.want(0, "handoff", "a")
	p := b.prepare("adopt", "--ttl", brokenSoon.String(), "-", "--", "sh", "-c",
		"cat >$D/input; echo >$D/ready; exec sleep 1000")
	p.Stdin = strings.NewReader(ticket + "for the command\n")
	p.begin()
	b.file("ready")
	if got := b.file("input"); got != "for the command" {
		t.Errorf("the command reads %q", got)
	}
	b.want(0, "break", "a", "--token", v["HOLDFAST_TOKEN"])
	if code := p.code(); code != 76 {
		t.Errorf("exit code %d: %s", code, p.err.String())
	}
	// A file of a ticket is as private as one of a password.
	file := b.put("ticket", ticket)
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, stderr := b.want(78, "adopt", "--ticket-file", file, "--", "true"); !strings.Contains(stderr,
		"--ticket-file: "+file+": every user may read it") || strings.Contains(stderr, strings.TrimSpace(ticket)) {
		t.Error(stderr)
	}
}

// A ticket goes to a process that has no keeper and another folder of sockets, as on another
// machine, also if the keeper is killed right after the adoption.
func TestAdoptAfterTheKeeper(t *testing.T) {
	onStores(t, "mysql", func(b *bench) {
		b = b.runtimeDir()
		v := b.keep("--ttl", "5s", "a")
		pid := keeperOf(b, v)
		ticket, _ := b.want(0, "handoff", "a")
		away := b.runtimeDir().with("HOLDFAST_TICKET=" + strings.TrimSpace(ticket))
		p := away.start("--ttl", "1m", "adopt", "--", "sh", "-c",
			"echo $HOLDFAST_TOKEN >$D/adopted; until [ -e $D/end ]; do sleep 0.05; done")
		if got := b.file("adopted"); got != v["HOLDFAST_TOKEN"] {
			b.Errorf("token %s, hold had %s", got, v["HOLDFAST_TOKEN"])
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && err != syscall.ESRCH {
			b.Fatal(err)
		}
		// The lease of the adopter outlives the keeper's, which has ended when a later one of that length has.
		second := b.keep("--ttl", "5s", "second")
		if err := syscall.Kill(keeperOf(b, second), syscall.SIGKILL); err != nil {
			b.Fatal(err)
		}
		b.want(0, "run", "second", "--", "true")
		b.want(75, "run", "-n", "a", "--", "true")
		b.touch("end")
		if code := p.code(); code != 0 {
			b.Errorf("exit code %d: %s", code, p.err.String())
		}
		b.want(0, "run", "-n", "a", "--", "true")
	})
}
