package drivertest

import (
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/memlock"
)

// The suite refuses a connection that lacks one of the faults.
func TestIncompleteHarness(t *testing.T) {
	for name, spoil := range map[string]func(*Conn){
		"Kill": func(c *Conn) { c.Kill = nil }, "Cut": func(c *Conn) { c.Cut = nil },
		"DropReplies": func(c *Conn) { c.DropReplies = nil }, "Hold": func(c *Conn) { c.Hold = nil },
		"Forget": func(c *Conn) { c.Forget = nil },
	} {
		t.Run(name, func(t *testing.T) {
			h := Harness{TTL: time.Second, Bubble: true, Open: func(testing.TB) Conn {
				c := Faulty(memlock.New())
				spoil(&c)
				return c
			}}
			if !fails(t, func() Harness { return h }, exclusive[0]) {
				t.Errorf("a harness without %s is accepted", name)
			}
		})
	}
}
