package mutant

import (
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/history"
)

// sqlite are bugs of the store in a SQLite file.
var sqlite = []Mutant{
	{
		ID: "sqlite-take-unguarded", Store: SQLite, Class: in(history.S1),
		Bug: "the statement that takes a name does not check whether its lease has expired",
		Edits: []Edit{{"sqllock/sqlite/schema.go", `(` + "` + unsound + `" + `) AND expires <= excluded.since`,
			`(` + "` + unsound + `" + `)`}},
	},
	{
		ID: "sqlite-token-not-raised", Store: SQLite, Class: in(history.S4),
		Bug: "a hand-over gives the next holder the token of the row, without a raise",
		Edits: []Edit{{"sqllock/sqlite/table.go", `token := max(r.token+block, r.floor+block, t.us)`,
			`token := max(r.token, r.floor+block)`}},
	},
	{
		ID: "sqlite-lifo", Store: SQLite, Class: in(history.L3),
		Bug: "the last waiter is served first",
		Edits: []Edit{
			{"sqllock/sqlite/schema.go", `p.seq = (SELECT min(seq) FROM place WHERE name = l.name)`,
				`p.seq = (SELECT max(seq) FROM place WHERE name = l.name)`},
			{"sqllock/sqlite/schema.go", `WHERE p.name = ? ORDER BY p.seq LIMIT 1`,
				`WHERE p.name = ? ORDER BY p.seq DESC LIMIT 1`},
		},
	},
	{
		ID: "sqlite-barging", Store: SQLite, Class: in(history.L3),
		Bug: "a new request may take a released lock before the waiters",
		Edits: []Edit{
			{"sqllock/sqlite/verbs.go", `free := r.waiting == 0 && r.fits(req.Mode, req.N)`, `free := r.fits(req.Mode, req.N)`},
		},
	},
	{
		ID: "sqlite-permits-by-holders", Store: SQLite, Class: in(history.S5),
		Bug: "the permits in use are counted by holders, not by the permits of each",
		Edits: []Edit{{"sqllock/sqlite/table.go", `return rule.Fits(mode, n, r.limit, holders, used, exclusive)`,
			`return rule.Fits(mode, 1, r.limit, holders, holders, exclusive)`}},
	},
	{
		ID: "sqlite-writer-beside-readers", Store: SQLite, Class: in(history.S1, history.S5),
		Bug: "the readers of a lock are not counted for a writer's request",
		Edits: []Edit{{"sqllock/sqlite/table.go", `holders, used, exclusive := r.holders, r.used, r.x.id != ""`,
			`holders, used, exclusive := 0, r.used, r.x.id != ""`}},
	},
	{
		ID: "sqlite-clock-differs", Store: SQLite, Class: in(history.S1),
		Bug: "a lease is written by one clock and compared with another, which is ahead by most of a TTL",
		Edits: []Edit{{"sqllock/sqlite/table.go", `if r.x.id != "" && r.x.expires <= t.now {`,
			`if r.x.id != "" && r.x.expires <= t.now+700_000_000 {`}},
	},
	{
		ID: "sqlite-readers-stay", Store: SQLite, Class: in(history.L2),
		Bug: "a released reader or permit stays counted until its lease would expire",
		Edits: []Edit{{"sqllock/sqlite/table.go", `	r.holders, r.used = r.holders-1, r.used-g.n
	_, err := t.c.exec(qDropHold, []byte(r.name), g.token)
	return err`, `	return nil`}},
		Run: Run{TTL: 2 * time.Second, For: 12 * time.Second, Slack: 500 * time.Millisecond},
	},
	{
		ID: "sqlite-descriptors-leak", Store: SQLite, Class: in(history.L4),
		Bug: "the files of a session stay open after its end",
		Edits: []Edit{{"sqllock/sqlite/endpoint.go", `	err = errors.Join(err, s.endpoint.close())
	s.wg.Wait()
`, ``}},
	},
	{
		ID: "sqlite-deaf", Store: SQLite, Class: in(history.L2),
		Bug: "a waiter learns of a hand-over neither from a notification nor from a renewal",
		Edits: []Edit{
			{
				"sqllock/sqlite/table.go",
				`	t.notifications = append(t.notifications, notification{session: p.session, id: p.id, token: uint64(token), to: &at})`, `	_ = at`},
			{
				"sqllock/sqlite/verbs.go",
				`return driver.Change{State: driver.Granted, Token: uint64(g.token)}, nil, t.extend(r, g, u)`,
				`return driver.Change{}, nil, t.extend(r, g, u)`},
		},
		Run: Run{TTL: 2 * time.Second, For: 12 * time.Second, Slack: 500 * time.Millisecond},
	},
}
