// Leader: of two candidates one leads, and the other follows. When the leader is killed, the follower takes
// over as soon as the dead leader's lease has expired.
//
// The term is a fencing token: larger for each later leader. Give it to what the leader writes to.
package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/examples/internal/example"
)

func main() { example.Main(map[string]example.Part{"": watch, "candidate": candidate}) }

// watch starts two candidates, and kills the leader.
func watch(ctx context.Context, x *example.Run) error {
	a, err := x.Start("candidate", "a")
	if err != nil {
		return err
	}
	defer a.Kill()
	first, err := a.Line(ctx)
	if err != nil {
		return err
	}
	fmt.Println("a:", first)

	b, err := x.Start("candidate", "b")
	if err != nil {
		return err
	}
	defer b.Kill()
	line, err := b.Line(ctx)
	if err != nil {
		return err
	}
	fmt.Println("b:", line)
	if strings.HasPrefix(line, "I lead") {
		return example.Damage("a and b lead at the same time")
	}
	second, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if line, err := b.Line(second); err == nil { // with the lock it waits
		if a.Ended() {
			return errors.New("a has ended before it was killed")
		}
		return example.Damage("a leads, and b says: %s", line)
	}

	fmt.Println("a is killed")
	a.Kill()
	if line, err = b.Line(ctx); err != nil {
		return err
	}
	fmt.Println("b:", line)
	var term, next uint64
	if _, err := fmt.Sscanf(first+line, "I lead, term %dI lead, term %d", &term, &next); err != nil {
		return err
	}
	if next <= term {
		return example.Damage("term %d does not come after term %d", next, term)
	}
	return nil
}

// candidate leads when its turn comes. It is a process.
func candidate(ctx context.Context, x *example.Run) error {
	if x.WithoutLock {
		return serve(ctx, x, 0)
	}
	c, err := holdfast.New(ctx, x.Store, &holdfast.Config{TTL: example.TTL}) // default: 15 seconds
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	e := c.Election("example/api", holdfast.Candidate(x.Args[0], "")) // the second may be an address
	leader, err := e.Leader(ctx)
	if err != nil {
		return err
	}
	if leader != nil {
		fmt.Printf("I follow %s\n", leader.Name)
	}
	// Its context ends with the leadership. A candidate that has lost it calls Lead again.
	return e.Lead(ctx, func(ctx context.Context) error { return serve(ctx, x, holdfast.Token(ctx)) })
}

// serve is the service that only one may provide.
func serve(ctx context.Context, x *example.Run, term uint64) error {
	fmt.Printf("I lead, term %d\n", term)
	_, err := x.Await(ctx) // for ever, or until it is no longer leader
	return err
}
