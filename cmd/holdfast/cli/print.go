package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast"
)

// schema identifies the format of JSON output. Later versions may add fields, but change none.
const schema = "holdfast/v1"

// format is the flag -o.
type format string

// formatFlag sets a format to one of a list.
type formatFlag struct {
	to *format
	of []string
}

func (f formatFlag) String() string { return string(*f.to) }
func (f formatFlag) Type() string   { return "FORMAT" }

func (f formatFlag) Set(text string) error {
	if !slices.Contains(f.of, text) {
		return fmt.Errorf("allowed are %s", strings.Join(f.of, ", "))
	}
	*f.to = format(text)
	return nil
}

// register adds the flag; the first of the formats is the default.
func (f *format) register(c *cobra.Command, formats ...string) {
	*f = format(formats[0])
	c.Flags().VarP(formatFlag{f, formats}, "output", "o", "`FORMAT`: "+strings.Join(formats, ", "))
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
}

// recordFormats are the formats of ls and info.
var recordFormats = []string{"table", "wide", "json", "jsonl", "name"}

// who returns user@host:pid, or "another program" for a grant of a program that is not holdfast.
func who(h *holdfast.Holder) string {
	if foreign(h) {
		return "another program"
	}
	name := ""
	if h.User != "" {
		name = word(h.User) + "@"
	}
	return fmt.Sprintf("%s%s:%d", name, word(h.Host), h.PID)
}

// foreign reports whether another program, which shares the store, made the grant h.
func foreign(h *holdfast.Holder) bool { return h.Host == "" && h.PID == 0 }

// leaseLeft returns how long h has left. A store may not know this for another program's grant.
func leaseLeft(h *holdfast.Holder) string {
	if h.Left == 0 && foreign(h) && !h.Kept {
		return "unknown"
	}
	return rough(h.Left)
}

// since returns h as it is when the store was read old ago, and h has not renewed its lease meanwhile: both
// of its times go on together.
func since(h *holdfast.Holder, old time.Duration) *holdfast.Holder {
	now := *h
	if now.Left > 0 { // else it may not be known
		now.Left = max(now.Left-old, 1)
	}
	return &now
}

// heldFor returns how long h has held or waited. A store may not know this for another program's grant.
func heldFor(h *holdfast.Holder) string {
	if h.Undated {
		return "unknown"
	}
	return rough(time.Since(h.Since))
}

// describe describes a holder in one line, which follows the name of the lock.
func describe(h *holdfast.Holder) string {
	var b strings.Builder
	switch {
	case h.Partial:
		b.WriteString("not free at enough servers of the quorum: a grant of " + who(h))
	case h.Kept:
		fmt.Fprintf(&b, "kept for another %s (a minimum hold), and held by nobody: taken by %s", rough(h.Left), who(h))
	case h.Abandoned:
		b.WriteString("not free: left by an earlier try of this command: " + who(h))
	default:
		how := "held"
		if h.Shared {
			how = "shared"
		}
		b.WriteString(how + " by " + who(h))
	}
	if h.Program != "" {
		b.WriteString(" " + quote(h.Program))
	}
	switch {
	case h.Partial && h.Kept:
		fmt.Fprintf(&b, ", kept for another %s (a minimum hold)", rough(h.Left))
	case h.Partial:
		fmt.Fprintf(&b, ", which ends in %s", rough(h.Left))
	case h.Kept:
		fmt.Fprintf(&b, " %s ago", rough(time.Since(h.Since)))
	default:
		if !h.Undated {
			fmt.Fprintf(&b, " for %s", rough(time.Since(h.Since)))
		}
		fmt.Fprintf(&b, " · lease %s", leaseLeft(h))
	}
	if h.Sticky > 0 {
		fmt.Fprintf(&b, " · sticky, may be idle for up to %s", rough(h.Sticky))
	}
	if h.Local > 0 {
		fmt.Fprintf(&b, " · %d more in the same process", h.Local)
	}
	if h.Note != "" {
		b.WriteString(" · " + quote(h.Note))
	}
	if l := joined(h.Labels); l != "" {
		b.WriteString(" · " + l)
	}
	return b.String()
}

// joined returns labels as k=v k=v, in order of the keys.
func joined(labels map[string]string) string {
	var list []string
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		list = append(list, word(k)+"="+word(labels[k]))
	}
	return strings.Join(list, " ")
}

// rough returns d for people: 12s, 3m12s, 2h5m, 3d4h.
func rough(d time.Duration) string {
	s := int64(d.Round(time.Second) / time.Second)
	switch {
	case s < 60:
		return fmt.Sprintf("%ds", max(s, 0))
	case s < 3600:
		return fmt.Sprintf("%dm%ds", s/60, s%60)
	case s < 86400:
		return fmt.Sprintf("%dh%dm", s/3600, s%3600/60)
	}
	return fmt.Sprintf("%dd%dh", s/86400, s%86400/3600)
}

func userName() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return "?"
}

// table writes rows in columns.
func table(w io.Writer, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		fmt.Fprintln(t, strings.Join(r, "\t"))
	}
	return t.Flush()
}

// recordJSON is a lock in JSON. Tokens are strings: programs that read numbers as floating point
// would change large ones.
type recordJSON struct {
	Schema  string       `json:"schema,omitempty"`
	Name    string       `json:"name"`
	Kind    string       `json:"kind"`
	Limit   int          `json:"limit,omitempty"`
	Set     bool         `json:"limit_set,omitempty"`
	Used    *int         `json:"used,omitempty"`
	Count   *int64       `json:"count,omitempty"`
	Token   string       `json:"token"`
	Holders []holderJSON `json:"holders"`
	Waiters []holderJSON `json:"waiters"`
	Waiting int          `json:"waiting"`
	Partial []holderJSON `json:"partial,omitempty"`    // of a quorum: they leave too few servers to others
	FreeMS  int64        `json:"free_in_ms,omitempty"` // when enough of them are free
	Damaged string       `json:"damaged,omitempty"`

	// The texts of info: why the name is taken, and what other programs keep under it.
	Why    []string `json:"why,omitempty"`
	Beside []string `json:"beside,omitempty"`
}

type holderJSON struct {
	ID      string            `json:"id"`
	Token   string            `json:"token,omitempty"`
	User    string            `json:"user"`
	Host    string            `json:"host"`
	PID     int               `json:"pid"`
	Program string            `json:"program"`
	Note    string            `json:"note,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
	Shared  bool              `json:"shared,omitempty"`
	Permits int               `json:"permits"`
	Kept    bool              `json:"kept,omitempty"`
	Partial bool              `json:"partial,omitempty"`
	Since   time.Time         `json:"since,omitzero"` // absent: not known
	LeftMS  int64             `json:"left_ms"`
	LeaseMS int64             `json:"lease_ms,omitempty"` // after a renewal
	HoldMS  int64             `json:"max_hold_ms,omitempty"`
	StickMS int64             `json:"sticky_ms,omitempty"`
	Local   int               `json:"local,omitempty"`  // calls of the same client that wanted it, too
	Tokens  int               `json:"tokens,omitempty"` // that the grant takes; absent: one
	Command string            `json:"command,omitempty"`
}

func toJSON(r *holdfast.Record) recordJSON {
	out := recordJSON{
		Schema: schema, Name: r.Name, Kind: r.Kind, Limit: r.Limit, Set: r.LimitSet, Token: strconv.FormatUint(r.Token, 10),
		Holders: holdersJSON(r.Holders), Waiters: holdersJSON(r.Waiters), Waiting: r.Waiting, Partial: holdersJSON(r.Partial),
		FreeMS:  r.FreeIn.Milliseconds(),
		Damaged: r.Damaged,
	}
	switch r.Kind {
	case "semaphore":
		n := used(r)
		out.Used = &n
	case "latch":
		out.Count = &r.Count
	}
	return out
}

// used returns how many permits of a semaphore are taken.
func used(r *holdfast.Record) (n int) {
	for i := range r.Holders {
		n += r.Holders[i].Permits
	}
	return n
}

func holdersJSON(list []holdfast.Holder) []holderJSON {
	out := []holderJSON{} // not null
	for _, h := range list {
		j := holderJSON{
			ID: h.ID, User: h.User, Host: h.Host, PID: h.PID, Program: h.Program, Note: h.Note, Labels: h.Labels,
			Shared: h.Shared, Permits: h.Permits, Kept: h.Kept, Partial: h.Partial, Since: h.Since.UTC().Round(time.Millisecond),
			LeftMS: h.Left.Milliseconds(), LeaseMS: h.Lease.Milliseconds(),
			HoldMS: h.MaxHold.Milliseconds(), StickMS: h.Sticky.Milliseconds(), Command: h.Command, Local: h.Local,
		}
		if h.Tokens > 1 {
			j.Tokens = h.Tokens
		}
		if h.Undated {
			j.Since = time.Time{}
		}
		if h.Token != 0 {
			j.Token = strconv.FormatUint(h.Token, 10)
		}
		out = append(out, j)
	}
	return out
}

func writeJSON(w io.Writer, v any, indent bool) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if indent {
		e.SetIndent("", "  ")
	}
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := io.WriteString(w, escapeJSON(b.String()))
	return err
}
