package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast/open"
)

const aboutInit = `Create the tables of a store in MySQL, MariaDB or PostgreSQL, or update those of an earlier
version. You may run it again: it changes nothing that is up to date, and no lock in use.

The user of the URL needs the right to create tables in the database, which must exist.
Users that lock need fewer rights. With --print, init asks no server and prints the SQL
statements, so that you can run them yourself.

For a quorum of Redis servers, init declares that the quorum is new: nobody has had a lock
there. Its servers then vote at once instead of after the quarantine. If some of them vote
already and others do not, the quorum is not new, and init refuses. If all of them vote,
init changes nothing.

Other stores create what they need by themselves; for them init does nothing.`

// initLimit bounds how long the server may take: a change of a table waits for its users.
const initLimit = 10 * time.Second

func (a *app) initCommand() *cobra.Command {
	var printed bool
	c := &cobra.Command{
		Use:   "init",
		Short: "Create the tables that a store needs (MySQL, PostgreSQL), or declare a quorum new",
		Long:  aboutInit,
		Example: `  holdfast init --store mysql://admin@db/locks
  holdfast init --store postgres://admin@db/locks --print >locks.sql
  holdfast init --store redis+quorum://r1,r2,r3,r4,r5`,
		Args: noArguments,
		RunE: ours(func(*cobra.Command, []string) error {
			if printed {
				return a.printTables()
			}
			return a.makeTables()
		}),
	}
	c.Flags().BoolVar(&printed, "print", false, "print the SQL statements and do nothing")
	return c
}

func (a *app) makeTables() error {
	ctx, cancel := context.WithTimeout(context.Background(), initLimit)
	defer cancel()
	began := time.Now()
	place, err := open.Init(ctx, a.url())
	if err != nil {
		return a.unopened(err, time.Since(began))
	}
	if strings.HasPrefix(place, "redis-quorum:") {
		_, err = fmt.Fprintf(a.stdout, "the servers vote: %s\n", show(place))
	} else if place == "" {
		_, err = fmt.Fprintln(a.stdout, noTables)
	} else {
		_, err = fmt.Fprintf(a.stdout, "the tables are ready: %s\n", show(place))
	}
	return err
}

const noTables = "this store needs no tables: there is nothing to do"

func (a *app) printTables() error {
	statements, err := open.Schema(a.url())
	if err == nil && len(statements) == 0 {
		a.say(noTables) // on standard error: another program may read the statements
	}
	err = a.unopened(err, 0)
	for _, s := range statements {
		if err == nil {
			_, err = fmt.Fprintf(a.stdout, "%s;\n", s)
		}
	}
	return err
}
