// Cron: three replicas of a program have the same schedule. At each tick one of them runs the job.
//
// OnlyOne takes the lock without waiting, and keeps the name for most of the tick, even after the job has
// ended or its process has died. So a replica whose clock is a little slow does not run the job again.
package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/examples/internal/example"
)

const replicas = 3

func main() { example.Main(map[string]example.Part{"": tick, "replica": replica}) }

// tick is the schedule of all replicas in this example.
func tick(ctx context.Context, x *example.Run) error {
	err := x.Prepare(ctx, `DROP TABLE IF EXISTS example_report`, `CREATE TABLE example_report (replica INTEGER NOT NULL)`)
	if err != nil {
		return err
	}
	// A real job has a fixed name. This one is new each time: its name stays taken for most of an hour.
	job := "example/report/" + rand.Text()
	var all [replicas]*example.Process
	for i := range all {
		if all[i], err = x.Start("replica", fmt.Sprint(i+1), job); err != nil {
			return err
		}
		defer all[i].Kill()
		if _, err := all[i].Line(ctx); err != nil {
			return err
		}
	}
	fmt.Printf("%d replicas are ready, and their schedules start the job\n", replicas)
	for _, r := range all {
		if err := r.Say("it is time"); err != nil {
			return err
		}
	}
	for i, r := range all {
		did, err := r.Line(ctx)
		if err != nil {
			return err
		}
		fmt.Printf("replica %d: %s\n", i+1, did)
	}
	n, err := x.Number(ctx, `SELECT COUNT(*) FROM example_report`)
	if err != nil {
		return err
	}
	fmt.Printf("reports of this hour: %d\n", n)
	if n != 1 {
		return example.Damage("the job has run %d times", n)
	}
	return nil
}

// replica waits for its schedule, and runs the job unless another replica does. It is a process.
func replica(ctx context.Context, x *example.Run) error {
	c, err := holdfast.New(ctx, x.Store, nil)
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	number, name := x.Args[0], x.Args[1]
	job := func(ctx context.Context) error {
		return x.Exec(ctx, `INSERT INTO example_report VALUES (?)`, number)
	}

	fmt.Println("ready")
	if _, err := x.Await(ctx); err != nil {
		return err
	}
	ran := true
	if x.WithoutLock {
		err = job(ctx)
	} else {
		ran, err = c.OnlyOne(ctx, name, time.Hour, job)
	}
	switch {
	case err != nil:
		return err
	case ran:
		fmt.Println("I have run the job")
	default:
		fmt.Println("another one runs it")
	}
	return nil
}
