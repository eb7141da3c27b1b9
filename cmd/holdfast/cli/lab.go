package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/lab"
	"github.com/holdfast-lock/holdfast/open"
)

const aboutLab = `Run widely used lock algorithms that are unsafe, each on a real server and in the order of events
that breaks it. Then run holdfast in the same order of events.

  holdfast lab list                       list the algorithms
  holdfast lab show setpx-del             explain one of them
  holdfast lab run setpx-del              run one of them, as a timeline
  holdfast lab run all -o summary         run all of them, with one line each
  holdfast lab run all --html lab.html    write all timelines as one page
  holdfast lab run setpx-del --svg a.svg  draw one of them

The lab starts its own servers, each if an algorithm needs it, and ends them: redis-server, MariaDB
and PostgreSQL, which only this user can reach, and ZooKeeper, which all users of this machine can
reach meanwhile. Algorithms whose server is not installed are left out. With --store redis://... the
algorithms on Redis that need only one server, and do not kill it, use that server, and those of
other stores are left out. They write under a prefix of their own (hf:lab:...), set an expiry on
every key, and remove their keys. The lab ignores HOLDFAST_URL.`

func (a *app) labCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "lab",
		Short: "See widely used lock algorithms break on real servers, and holdfast survive",
		Long:  aboutLab,
		Args:  commandsOnly,
		RunE: ours(func(c *cobra.Command, _ []string) error {
			return usagef("say what to do: holdfast lab list, or holdfast lab run ID")
		}),
	}
	c.AddCommand(a.labListCommand(), a.labShowCommand(), a.labRunCommand())
	return c
}

func (a *app) labListCommand() *cobra.Command {
	var out format
	c := &cobra.Command{
		Use:   "list",
		Short: "List the algorithms of the lab",
		Long:  "List the algorithms of the lab. CLASS is the promise that breaks (docs/history.md has the classes).",
		Args:  noArguments,
		RunE:  ours(func(*cobra.Command, []string) error { return a.labList(out) }),
	}
	out.register(c, "table", "json", "name")
	return c
}

// rowJSON is an algorithm of the lab in JSON.
type rowJSON struct {
	ID      string   `json:"id"`
	Store   string   `json:"store"`
	Title   string   `json:"title"`
	Setup   []string `json:"setup,omitempty"`
	Class   string   `json:"class"`
	Acquire string   `json:"acquire"`
	Release string   `json:"release"`
	Habit   string   `json:"habit"`
	Why     string   `json:"why"`
	How     string   `json:"how"`
	Servers int      `json:"servers,omitempty"` // how many servers of its own it needs
}

func toRowJSON(r *lab.Row) rowJSON {
	return rowJSON{r.ID, string(r.Store), r.Title, r.Setup, string(r.Class), r.Acquire, r.Release, r.Habit, r.Why, r.How,
		r.Servers}
}

func (a *app) labList(out format) error {
	list := []rowJSON{}
	rows := [][]string{{"ID", "STORE", "CLASS", "ALGORITHM"}}
	for _, r := range lab.Rows() {
		list = append(list, toRowJSON(&r))
		rows = append(rows, []string{r.ID, string(r.Store), string(r.Class), r.Title})
		if out == "name" {
			if _, err := fmt.Fprintln(a.stdout, r.ID); err != nil {
				return err
			}
		}
	}
	switch out {
	case "json":
		return writeJSON(a.stdout, struct {
			Schema     string    `json:"schema"`
			Algorithms []rowJSON `json:"algorithms"`
		}{schema, list}, true)
	case "table":
		return table(a.stdout, rows)
	}
	return nil
}

// labIDs completes the names of algorithms.
func labIDs(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	names := []string{"all"}
	for _, r := range lab.Rows() {
		names = append(names, r.ID)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

const aboutLabRun = `Run algorithms of the lab, and holdfast in the same order of events.

A timeline has a column for each client. The second column shows which clients believe that they
hold the lock, with an exclamation mark if these are too many. The lab skips time instead of
waiting: it shortens the leases at the server, or ends sessions, and the timeline shows that.
Findings have the classes of package history: S1 the store granted a lock again inside a lease, S2
a client claimed it beyond its lease, S3 an update was lost, S4 a fencing token is not larger than
an earlier one, S5 more permits than the limit, L1 a lock stays taken after its holder's death, L2
a waiter is forgotten, L3 a waiter is overtaken, L4 something is left over; cost is about waiting.

Exit codes: 0 if every algorithm broke as documented and holdfast survived; 1 if not. Otherwise
as for every command: 69 the store cannot be reached, or the server of an algorithm that you named
is not installed (with "all" the others run), 64 there is no such algorithm.`

// labFlags are those of lab run.
type labFlags struct {
	named []string // the arguments: IDs, or all
	out   format
	json  bool
	html  string
	svg   string
	step  bool
}

func (a *app) labRunCommand() *cobra.Command {
	var flags labFlags
	c := &cobra.Command{
		Use:   "run ID... | all",
		Short: "Run algorithms of the lab, and holdfast next to them",
		Long:  aboutLabRun,
		Example: `  holdfast lab run setpx-del redlock-restart
  holdfast lab run all -o summary --html lab.html
  holdfast lab run setpx-del -o summary --svg setpx-del.svg`,
		RunE: ours(func(c *cobra.Command, ids []string) error {
			if flags.json {
				if c.Flags().Changed("output") && flags.out != "json" {
					return usagef("--json and -o %s contradict each other", flags.out)
				}
				flags.out = "json"
			}
			rows, err := labRows(ids)
			if err != nil {
				return err
			}
			if flags.svg != "" && len(rows) != 1 {
				return usagef("--svg draws one algorithm, not %d%s", len(rows), helpHint(c))
			}
			if flags.step && (len(rows) != 1 || flags.out != "text") {
				return usagef("--step shows one algorithm, as text%s", helpHint(c))
			}
			flags.named = ids
			return a.labRun(flags, rows)
		}),
		ValidArgsFunction: labIDs,
	}
	flags.out.register(c, "text", "summary", "json")
	c.Flags().BoolVar(&flags.json, "json", false, "the same as -o json")
	c.Flags().BoolVar(&flags.step, "step", false,
		"show one event after the other: Enter shows the next one, the end of input the rest")
	c.Flags().StringVar(&flags.html, "html", "", "also write the timelines to `FILE`, as one page")
	c.Flags().StringVar(&flags.svg, "svg", "", "also draw one algorithm, and holdfast beside it, to `FILE`")
	return c
}

// labRows returns the rows with these IDs, in the order of the lab.
func labRows(ids []string) (rows []lab.Row, err error) {
	if len(ids) == 0 {
		return nil, usagef("no algorithm is given: expected an ID from holdfast lab list, or all")
	}
	all := lab.Rows()
	known := func(id string) bool {
		return id == "all" || slices.ContainsFunc(all, func(r lab.Row) bool { return r.ID == id })
	}
	for _, id := range ids {
		if !known(id) {
			return nil, usagef("there is no algorithm %s; see holdfast lab list", show(id))
		}
	}
	for _, r := range all {
		if slices.Contains(ids, r.ID) || slices.Contains(ids, "all") {
			rows = append(rows, r)
		}
	}
	return rows, nil
}

// labJSON is the result of lab run in JSON.
type labJSON struct {
	Schema  string       `json:"schema"`
	OK      bool         `json:"ok"`
	Runs    []labRunJSON `json:"runs"`
	LeftOut []leftJSON   `json:"left_out,omitempty"`
}

// leftJSON are algorithms that cannot run here.
type leftJSON struct {
	Store  string   `json:"store"`
	IDs    []string `json:"ids"`
	Reason string   `json:"reason"`
}

type labRunJSON struct {
	rowJSON
	Broke     bool        `json:"broke"`
	Survived  bool        `json:"survived"`
	Algorithm labPartJSON `json:"algorithm"`
	Holdfast  labPartJSON `json:"holdfast"`
}

type labPartJSON struct {
	Found    []labFoundJSON `json:"found"`
	Rate     *labRateJSON   `json:"rate,omitempty"`
	Error    string         `json:"error,omitempty"`
	Timeline []labEventJSON `json:"timeline"`
}

type labFoundJSON struct {
	Class    string `json:"class"`
	Promise  string `json:"promise"`
	Text     string `json:"text"`
	Count    int    `json:"count"`
	Excepted bool   `json:"excepted,omitempty"`
}

type labRateJSON struct {
	Waiters   int     `json:"waiters"`
	Requests  int     `json:"requests"`
	WindowMS  int64   `json:"window_ms"`
	PerSecond float64 `json:"per_second"`
	Unserved  int     `json:"unserved,omitempty"`
	HandOver  bool    `json:"hand_over,omitempty"` // the requests are those of one release
}

type labEventJSON struct {
	AtMS    float64  `json:"at_ms"`
	Lane    string   `json:"lane"`
	Kind    string   `json:"kind"`
	Text    string   `json:"text"`
	Answer  string   `json:"answer,omitempty"`
	Holders []string `json:"holders"`
}

func toLabPartJSON(p *lab.Part) labPartJSON {
	out := labPartJSON{Found: []labFoundJSON{}, Timeline: []labEventJSON{}}
	for _, f := range p.Found {
		out.Found = append(out.Found, labFoundJSON{string(f.Class), f.Promise, f.Text, f.Count, f.Excepted})
	}
	if r := p.Rate; r != nil {
		out.Rate = &labRateJSON{r.Waiters, r.Requests, r.Window.Milliseconds(), r.PerSecond(), r.Unserved, r.HandOver}
	}
	if p.Err != nil {
		out.Error = p.Err.Error()
	}
	for _, e := range p.Record.Events() {
		out.Timeline = append(out.Timeline, labEventJSON{float64(e.At.Microseconds()) / 1000, e.Lane, string(e.Kind), e.Text,
			e.Answer, append([]string{}, e.Holders...)})
	}
	return out
}

func (a *app) labRun(flags labFlags, rows []lab.Row) error {
	ctx, detach := cancelOnSignal(catchSignals())
	bad, err := a.labPlay(ctx, flags, rows)
	if caught := detach(); caught != nil {
		return caught
	}
	if err != nil {
		return err
	}
	if len(bad) > 0 {
		return &failure{exitDanger, fmt.Errorf("not as documented: %s", strings.Join(bad, ", "))}
	}
	return nil
}

// labPlay runs rows and returns the IDs of those that did not behave as documented.
func (a *app) labPlay(ctx context.Context, flags labFlags, rows []lab.Row) (bad []string, err error) {
	l, err := lab.New(ctx, a.store)
	if err != nil {
		return nil, open.Redact(err, a.store)
	}
	defer l.Close()
	report := labJSON{Schema: schema, OK: true, Runs: []labRunJSON{}}
	rows, left := l.Runnable(rows)
	for _, o := range left {
		named := slices.ContainsFunc(o.Rows, func(id string) bool { return slices.Contains(flags.named, id) })
		if named || len(rows) == 0 {
			return nil, o.Err
		}
		a.say("left out: %s: %v", strings.Join(o.Rows, ", "), o.Err)
		report.LeftOut = append(report.LeftOut, leftJSON{string(o.Store), o.Rows, o.Err.Error()})
	}
	page, err := createPage("--html", flags.html)
	if err != nil {
		return nil, err
	}
	defer page.discard()
	picture, err := createPage("--svg", flags.svg)
	if err != nil {
		return nil, err
	}
	defer picture.discard()
	var all []*lab.Outcome
	progress := a.labProgress(len(rows))
	progress(0)
	err = l.Run(ctx, rows, func(o *lab.Outcome) error {
		all = append(all, o)
		defer progress(len(all))
		if !o.OK() {
			bad, report.OK = append(bad, o.Row.ID), false
		}
		var err error
		switch flags.out {
		case "json":
			report.Runs = append(report.Runs, labRunJSON{toRowJSON(&o.Row), o.Broke, o.Survived, toLabPartJSON(&o.Unsound),
				toLabPartJSON(&o.Sound)})
		case "summary":
			_, err = fmt.Fprintln(a.stdout, o.Line())
		default:
			head := "\n\n"
			if len(all) == 1 {
				head = lab.Legend + "\n"
			}
			parts := o.Steps(columnsOf(a.stdout))
			parts[0] = head + parts[0]
			err = a.labText(ctx, parts, flags.step)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if flags.out == "json" {
		if err := writeJSON(a.stdout, report, true); err != nil {
			return nil, err
		}
	}
	if err := page.write(func(w io.Writer) error { return lab.WriteHTML(w, all) }); err != nil {
		return nil, err
	}
	return bad, picture.write(func(w io.Writer) error { return lab.WriteSVG(w, all[0]) })
}
