// Package example is what the examples share: their flags, the store of the locks, the database of the
// shop, and processes.
package example

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/examples/internal/server"
	"github.com/holdfast-lock/holdfast/fence"
	"github.com/holdfast-lock/holdfast/open"
)

// TTL is the lease of processes that are going to die or freeze: soon enough for an audience, and long
// enough for a busy machine to renew it.
const TTL = 5 * time.Second

// Run is one run of an example.
type Run struct {
	Store       *open.Store // has the locks
	DB          *sql.DB     // has the data of the shop
	Dialect     fence.Dialect
	WithoutLock bool
	Args        []string // of a process that Start has started

	url, dir string
	in       *lines // what the process that has started this one says
}

// Part is what one process of an example does. The part "" is that of the process that people start.
type Part func(context.Context, *Run) error

// damage is what the lock would have prevented.
type damage string

func (d damage) Error() string { return string(d) }

// Damage returns an error with which an example ends: the lock did not prevent this.
func Damage(format string, args ...any) error { return damage(fmt.Sprintf(format, args...)) }

// Main runs a part of an example, and ends the process. The exit code is 1 after damage, and 2 after
// other errors.
func Main(parts map[string]Part) {
	store := flag.String("store", "sqlite",
		"where the locks are: redis, mysql or zookeeper (starts a server of its own), sqlite, or the `URL` of a store")
	without := flag.Bool("without-lock", false, "leave the lock out, to see the damage")
	dir := flag.String("dir", "", "set by the example for its own processes: the folder of files")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, &Run{url: *store, dir: *dir, WithoutLock: *without}, parts)
	stop()
	var d damage
	switch {
	case errors.As(err, &d):
		fmt.Println("damage:", d)
		os.Exit(1)
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

func run(ctx context.Context, x *Run, parts map[string]Part) (err error) {
	name := ""
	if x.dir != "" {
		name, x.Args, x.in = flag.Arg(0), flag.Args()[1:], read(os.Stdin)
	} else {
		end, err := x.begin(ctx)
		if err != nil {
			return err
		}
		defer end()
	}
	if x.Store, err = open.Open(ctx, x.url); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, x.Store.Close()) }()
	if x.DB, x.Dialect, err = database(x.url, filepath.Join(x.dir, "shop.db")); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, x.DB.Close()) }()
	part := parts[name]
	if part == nil {
		return fmt.Errorf("there is no part %q", name)
	}
	return part(ctx, x)
}

// begin makes what the processes of an example share: a folder, and a server or the tables of one.
func (x *Run) begin(ctx context.Context) (end func(), err error) {
	if x.dir, err = os.MkdirTemp("", "holdfast-example-"); err != nil {
		return nil, err
	}
	end = func() { _ = os.RemoveAll(x.dir) }
	if slices.Contains(server.Stores, x.url) {
		url, stop, err := server.Start(ctx, x.url)
		if err != nil {
			end()
			return nil, err
		}
		remove := end
		x.url, end = url, func() { stop(); remove() }
	} else if x.url == "sqlite" {
		x.url = "sqlite:" + filepath.Join(x.dir, "locks.db")
	}
	tables, err := open.Schema(x.url)
	if err == nil && tables != nil {
		_, err = open.Init(ctx, x.url) // in production: "holdfast init", once
	}
	if err != nil {
		end()
	}
	return end, err
}

// Do runs f under a lock, or without it if the flag says so.
func (x *Run) Do(ctx context.Context, m *holdfast.Mutex, f func(context.Context) error) error {
	if x.WithoutLock {
		return f(ctx)
	}
	return m.Do(ctx, f)
}

// Prepare runs statements on the shop's database.
func (x *Run) Prepare(ctx context.Context, statements ...string) error {
	for _, s := range statements {
		if err := x.Exec(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	return nil
}

// Exec runs one statement on the shop's database.
func (x *Run) Exec(ctx context.Context, statement string, args ...any) error {
	_, err := x.DB.ExecContext(ctx, statement, args...)
	return err
}

// Number returns the number that a query of the shop's database finds.
func (x *Run) Number(ctx context.Context, query string, args ...any) (n int, err error) {
	err = x.DB.QueryRowContext(ctx, query, args...).Scan(&n)
	return n, err
}
