package mutant

import (
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/history"
)

// servers are bugs of the store on MariaDB and PostgreSQL.
var servers = []Mutant{
	{
		ID: "mariadb-take-unguarded", Store: MariaDB, Class: in(history.S1),
		Bug: "the upsert that takes a name does not check for a holder",
		Edits: []Edit{{"sqllock/mysql/statements.go", `free  = "(busy <= VALUES(at) AND waiting = 0`,
			`free  = "(waiting = 0`}},
	},
	{
		ID: "mariadb-clock-of-seconds", Store: MariaDB, Class: in(history.S1),
		Bug:   "the server's clock is read in whole seconds",
		Edits: []Edit{{"sqllock/mysql/dialect.go", `UTC_TIMESTAMP(6))"`, `UTC_TIMESTAMP())"`}},
	},
	{
		ID: "mariadb-token-not-raised", Store: MariaDB, Class: in(history.S4),
		Bug: "a hand-over leaves the row's token as it is",
		Edits: []Edit{
			{"sqllock/mysql/hand.go", `token = GREATEST({l}token + {tokens}, {now}, ? + {tokens}){mark}`,
				`token = GREATEST({l}token, LEAST(? + 1, 0)){mark}`},
			{"internal/waiters/waiters.go", `case token <= w.after || token == w.token:`, `case token == w.token:`},
		},
	},
	{
		ID: "mariadb-lifo", Store: MariaDB, Class: in(history.L3),
		Bug: "a new waiter joins at the head of the queue",
		Edits: []Edit{
			{"sqllock/mysql/statements.go", `line = CONCAT(line, ?, {now}, ' ', {now} + ?, ?)`,
				`line = CONCAT(?, {now}, ' ', {now} + ?, ?, line)`},
			{"sqllock/mysql/statements.go", `CONCAT(line, VALUES(hid), ' ', VALUES(hsession), ' 1 ', ?, ' ', ?, ' ', VALUES(since), ' ',
		VALUES(expires), ' ', VALUES(info), x'0a')`, `CONCAT(VALUES(hid), ' ', VALUES(hsession), ' 1 ', ?, ' ', ?, ' ', VALUES(since), ' ',
		VALUES(expires), ' ', VALUES(info), x'0a', line)`},
		},
	},
	{
		ID: "postgres-take-unguarded", Store: Postgres, Class: in(history.S1),
		Bug: "the upsert that takes a name does not check for a holder",
		Edits: []Edit{{"sqllock/postgres/statements.go", `free  = "(l.busy <= excluded.at AND l.waiting = 0`,
			`free  = "(l.waiting = 0`}},
	},
	{
		ID: "postgres-token-not-raised", Store: Postgres, Class: in(history.S4),
		Bug: "a hand-over leaves the row's token as it is",
		Edits: []Edit{
			{"sqllock/postgres/statements.go", `token = CASE WHEN l.waiting = 0 THEN l.token ELSE c.us END`,
				`token = l.token`},
			{"internal/waiters/waiters.go", `case token <= w.after || token == w.token:`, `case token == w.token:`},
		},
	},
	{
		ID: "postgres-renew-nothing", Store: Postgres, Class: in(history.S1, history.S5),
		Bug: "a renewal finds the row and leaves its lease as it was",
		Edits: []Edit{{"sqllock/postgres/statements.go",
			`SET expires = greatest(expires, {now} + %[1]d), busy = greatest(busy, {now} + %[1]d),`,
			`SET expires = greatest(expires, {now}), busy = greatest(busy, {now}, {now} - %[1]d),`}},
		Run: Run{For: 14 * time.Second},
	},
	{
		ID: "postgres-line-forgotten", Store: Postgres, Class: in(history.L3),
		Bug: "a hand-over drops the rest of the queue",
		Edits: []Edit{{"sqllock/postgres/statements.go", `	waiting = greatest(l.waiting - 1, 0),
	due = CASE WHEN l.waiting <= 1 THEN 0 ELSE l.due END,
	line = CASE WHEN l.waiting = 0 THEN '' ELSE substr(l.line, strpos(l.line, E'\n') + 1) END`, `	waiting = 0, due = 0, line = ''`}},
	},
	{
		ID: "rule-expired-stay", Store: Postgres, Class: in(history.L1),
		Bug: "an expired lease keeps blocking the waiters",
		Edits: []Edit{{"internal/rule/rule.go", `return h.Expires <= now && h.KeepUntil <= now`,
			`return h.Expires <= now && h.KeepUntil <= now && h.Kept`},
			{"internal/rule/rule.go", `		if h := &e.Holds[i]; h.Expires <= now {`,
				`		if h := &e.Holds[i]; h.Expires <= now && h.KeepUntil > 0 {`}},
		Run: Run{For: 14 * time.Second, Faults: "kill"},
	},
	{
		ID: "rule-permits-uncounted", Store: MariaDB, Class: in(history.S5),
		Bug:   "any number of permits is granted as long as one is free",
		Edits: []Edit{{"internal/rule/rule.go", `return used+n <= limit`, `return used < limit`}},
	},
	{
		ID: "rule-writer-beside-readers", Store: Postgres, Class: in(history.S5, history.S1),
		Bug:   "a writer gets the lock as long as no other writer has it",
		Edits: []Edit{{"internal/rule/rule.go", `return holders == 0`, `return !exclusive`}},
		Run:   Run{For: 14 * time.Second},
	},
}
