package console

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/httpapi"
	"github.com/holdfast-lock/holdfast/internal/plain"
	"github.com/holdfast-lock/holdfast/internal/signs"
)

// shown returns text of others so that it cannot look like other text. Templates escape it.
func shown(text string) string { return plain.Show(text) }

// who returns the process of a holder: user@host:pid, or a program of the HTTP API.
func who(h *holdfast.Holder) string {
	if foreign(h) {
		return "another program"
	}
	var b strings.Builder
	if s := h.Labels[httpapi.LabelSession]; s != "" {
		name := h.Labels[httpapi.LabelClient]
		if name == "" {
			name = "a program"
		}
		fmt.Fprintf(&b, "%s (session %s at ", plain.Word(name), plain.Word(s))
	}
	if h.User != "" {
		b.WriteString(plain.Word(h.User) + "@")
	}
	b.WriteString(plain.Word(h.Host) + ":" + strconv.Itoa(h.PID))
	if h.Labels[httpapi.LabelSession] != "" {
		b.WriteByte(')')
	}
	return b.String()
}

// foreign reports whether a program that is not holdfast has the grant.
func foreign(h *holdfast.Holder) bool { return h.Host == "" && h.PID == 0 }

// labels returns labels in order of their keys, without those of the HTTP API.
func labels(m map[string]string) (list []string) {
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if k != httpapi.LabelSession && k != httpapi.LabelClient {
			list = append(list, plain.Word(k)+"="+plain.Word(m[k]))
		}
	}
	return list
}

// mode returns how much of a name a holder has, or a waiter wants.
func mode(kind string, h *holdfast.Holder) string {
	switch {
	case kind == "semaphore":
		return plural(h.Permits, "permit")
	case h.Shared:
		return "shared"
	}
	return "exclusive"
}

// short returns d for people: 12s, 3m 12s, 2h 5m, 3d 4h.
func short(d time.Duration) string {
	s := int64(max(d, 0).Round(time.Second) / time.Second)
	switch {
	case s < 60:
		return fmt.Sprintf("%ds", s)
	case s < 3600:
		return fmt.Sprintf("%dm %ds", s/60, s%60)
	case s < 86400:
		return fmt.Sprintf("%dh %dm", s/3600, s%3600/60)
	}
	return fmt.Sprintf("%dd %dh", s/86400, s%86400/3600)
}

// heldFor returns how long h has held or waited. A store may not know this for another program's grant.
func heldFor(h *holdfast.Holder, now time.Time) string {
	if h.Undated {
		return "unknown"
	}
	return short(now.Sub(h.Since))
}

// plural returns 1 lock, 2 locks.
func plural(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	if strings.HasSuffix(word, "y") {
		return fmt.Sprintf("%d %sies", n, strings.TrimSuffix(word, "y"))
	}
	return fmt.Sprintf("%d %ss", n, word)
}

// lease is what is left of a lease.
type lease struct {
	Text  string
	Level string // "ok", "thin", "over"; "": unknown
	Part  int    // of 100
}

// leaseOf judges a lease. The bar compares with what the client says that a renewal makes of it, else with
// the longest lease that was seen of the grant.
func (s *snapshot) leaseOf(h *holdfast.Holder) lease {
	if h.Left == 0 && foreign(h) && !h.Kept {
		return lease{Text: "unknown"}
	}
	left := max(h.Left, 0)
	l := lease{Text: short(left), Level: "ok", Part: 100}
	full := h.Lease
	if full <= 0 {
		full = s.longest[h.ID]
	}
	if full > left {
		l.Part = int(100 * float64(left) / float64(full))
	}
	switch {
	case h.Kept:
		l.Level = "kept"
	case left == 0:
		l.Level = "over"
	case signs.Late(h):
		l.Level = "thin"
	}
	return l
}

// used returns how many permits are taken.
func used(r *holdfast.Record) (n int) {
	for i := range r.Holders {
		n += r.Holders[i].Permits
	}
	return n
}

// shellWord quotes a word for a shell, and returns "" if the word cannot be copied by hand.
func shellWord(word string) string {
	if strings.ContainsFunc(word, plain.Hidden) {
		return ""
	}
	if word != "" && strings.Trim(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+./:,@%") == "" &&
		word[0] != '-' {
		return word
	}
	quoted := "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	if word[0] == '-' {
		quoted = "-- " + quoted
	}
	return quoted
}
