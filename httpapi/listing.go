package httpapi

import (
	"net/http"
	"strconv"
	"time"

	"github.com/holdfast-lock/holdfast"
)

// holderOut is a holder or waiter, as its client described itself. It has no ID: what is shown is no
// capability.
type holderOut struct {
	Host    string            `json:"host,omitempty"`
	PID     int               `json:"pid,omitempty"`
	User    string            `json:"user,omitempty"`
	Program string            `json:"program,omitempty"`
	Note    string            `json:"note,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
	Mode    string            `json:"mode"`
	Permits int               `json:"permits,omitempty"`
	Token   string            `json:"token,omitempty"`
	Kept    bool              `json:"kept,omitempty"`
	Partial bool              `json:"partial,omitempty"` // at too few servers of a quorum
	AgeMS   int64             `json:"age_ms"`
	LeftMS  int64             `json:"left_ms"`
}

// recordOut is the state of a name.
type recordOut struct {
	Name    string      `json:"name"`
	Kind    string      `json:"kind"`
	Limit   int         `json:"limit,omitempty"`
	Count   *int64      `json:"count,omitempty"`
	Token   string      `json:"token"`
	Holders []holderOut `json:"holders"`
	Waiters []holderOut `json:"waiters"`
	Waiting int         `json:"waiting"`
	Partial []holderOut `json:"partial,omitempty"`    // of a quorum: they leave too few servers to others
	FreeMS  int64       `json:"free_in_ms,omitempty"` // when enough of them are free
	Damaged string      `json:"damaged,omitempty"`
}

func holders(list []holdfast.Holder) []holderOut {
	out := make([]holderOut, 0, len(list))
	for i := range list {
		h := &list[i]
		x := holderOut{Host: h.Host, PID: h.PID, User: h.User, Program: h.Program, Note: h.Note, Labels: h.Labels,
			Mode: modeExclusive, Kept: h.Kept, Partial: h.Partial,
			AgeMS: time.Since(h.Since).Milliseconds(), LeftMS: h.Left.Milliseconds()}
		if h.Shared {
			x.Mode = modeShared
		}
		if h.Token != 0 {
			x.Token = strconv.FormatUint(h.Token, 10)
		}
		out = append(out, x)
	}
	return out
}

func recordFor(r *holdfast.Record) recordOut {
	out := recordOut{Name: r.Name, Kind: r.Kind, Limit: r.Limit, Token: strconv.FormatUint(r.Token, 10),
		Holders: holders(r.Holders), Waiters: holders(r.Waiters), Waiting: r.Waiting,
		Partial: holders(r.Partial), FreeMS: r.FreeIn.Milliseconds(),
		Damaged: r.Damaged}
	switch r.Kind {
	case "latch":
		out.Count = &r.Count
	case "semaphore":
		for i := range out.Holders {
			out.Holders[i].Mode, out.Holders[i].Permits = modePermits, r.Holders[i].Permits
		}
		for i := range out.Waiters {
			out.Waiters[i].Mode, out.Waiters[i].Permits = modePermits, r.Waiters[i].Permits
		}
	}
	return out
}

func (s *Server) inspect(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Query().Get("name")
	rec, err := s.c.Inspect(r.Context(), name)
	if err != nil {
		p := readProblem(err)
		if p.open {
			s.log("inspect", err)
		}
		refuse(w, p)
		return
	}
	rec.Name = name
	write(w, http.StatusOK, recordFor(&rec))
}

// list answers with a page of the names in use. The cost is that of the names from the prefix on.
func (s *Server) list(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	limit, err := strconv.Atoi(q.Get("limit"))
	if q.Get("limit") == "" {
		limit, err = 100, nil
	}
	if err != nil || limit < 1 || limit > 1000 {
		refuse(w, invalid("limit: %q is given; allowed is a whole number from 1 to 1000", q.Get("limit")))
		return
	}
	out := struct {
		Locks []recordOut `json:"locks"`
		More  bool        `json:"more"`
	}{Locks: []recordOut{}}
	prefix, after := q.Get("prefix"), q.Get("after")
	for rec, err := range s.c.Locks(r.Context(), prefix) {
		if err != nil {
			p := readProblem(err)
			if p.open {
				s.log("list", err)
			}
			refuse(w, p)
			return
		}
		if rec.Name <= after {
			continue
		}
		if len(out.Locks) == limit {
			out.More = true
			break
		}
		out.Locks = append(out.Locks, recordFor(&rec))
	}
	write(w, http.StatusOK, out)
}
