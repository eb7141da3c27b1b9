package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/plain"
)

// maxForm is how large a form may be, formLimit how long it may take to arrive, and maxReason how long a
// reason may be.
const (
	maxForm   = 16 << 10
	formLimit = 10 * time.Second
	maxReason = 500
)

// order is what a form asks for: the end of one grant.
type order struct {
	user, name, reason string
	token              uint64
}

// asked returns the order of a form, or writes what is wrong with it. confirm: the name must have been
// typed. The name and the token are in the address, because browsers change line ends in forms. The
// address alone does nothing.
func (h *console) asked(w http.ResponseWriter, r *http.Request, confirm bool) (o order, ok bool) {
	refuse := func(status int, text string) (order, bool) {
		h.fail(w, r, status, text+" Nothing was done.")
		return order{}, false
	}
	if h.o.MayChange != nil {
		o.user, ok = h.o.MayChange(r)
	}
	switch {
	case !ok:
		return refuse(http.StatusForbidden, "This console only reads, or you are not allowed to change anything.")
	case r.Header.Get("Sec-Fetch-Site") == "" && r.Header.Get("Origin") == "":
		// Without one of them nobody knows which site has sent the form.
		return refuse(http.StatusForbidden, "The request does not say which site has sent it. Use a current browser.")
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		return refuse(http.StatusBadRequest, "The form could not be read.")
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	o.name = r.URL.Query().Get("name")
	o.reason = strings.TrimSpace(r.PostForm.Get("reason"))
	var err error
	o.token, err = strconv.ParseUint(r.URL.Query().Get("token"), 10, 64)
	switch {
	case err != nil || o.token == 0 || o.name == "":
		return refuse(http.StatusBadRequest, "The name or the token is missing.")
	case confirm && r.PostForm.Get("typed") != shown(o.name):
		return refuse(http.StatusBadRequest, "The name that was typed is not "+shown(o.name)+".")
	case o.reason == "":
		return refuse(http.StatusBadRequest, "The reason is missing.")
	case len(o.reason) > maxReason:
		return refuse(http.StatusBadRequest, fmt.Sprintf("The reason has more than %d bytes.", maxReason))
	}
	return o, true
}

// words returns the reason for the history of the name, with the user: the store knows only the
// process of this console.
func (o *order) words() string { return o.reason + " (" + o.user + ", at the console)" }

// note writes an order, and what became of it, to the log.
func (h *console) note(what string, o *order, err error) {
	if h.o.Logger != nil {
		h.o.Logger.Warn("console: "+what, "user", o.user, "lock", o.name, "token", o.token, "reason", o.reason, "err", err)
	}
	h.looks.forget(o.name)
}

// refused writes why an order was not carried out, and reports whether it was not.
func (h *console) refused(w http.ResponseWriter, r *http.Request, o *order, err error) bool {
	switch {
	case err == nil, errors.Is(err, holdfast.ErrUnrecorded):
		return false
	case errors.Is(err, holdfast.ErrGone):
		h.fail(w, r, http.StatusConflict, "No grant of "+shown(o.name)+" has token "+strconv.FormatUint(o.token, 10)+
			" any more. Nothing was done.")
	case errors.Is(err, holdfast.ErrInvalid):
		h.fail(w, r, http.StatusBadRequest, plain.Line(err.Error())+". Nothing was done.")
	case errors.Is(err, holdfast.ErrUncertain):
		h.fail(w, r, http.StatusBadGateway, "The store did not answer. Whether it was done is not known: look again.")
	default:
		h.fail(w, r, http.StatusBadGateway, "It was not done: "+reason(err)+".")
	}
	return true
}

// done writes what was done.
func (h *console) done(w http.ResponseWriter, r *http.Request, text string, err error) {
	if err != nil { // ErrUnrecorded
		text += " The history of the name may not show who did it: the store has not confirmed that."
	}
	p := h.frame(r, "", "Done", nil)
	p.Live, p.Body = false, text
	h.show(w, "message.html", p)
}

// revoke asks a holder to release.
func (h *console) revoke(w http.ResponseWriter, r *http.Request) {
	o, ok := h.asked(w, r, false)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), readLimit)
	defer cancel()
	err := h.c.Revoke(ctx, o.name, o.token, o.words())
	if h.note("ask to release", &o, err); h.refused(w, r, &o, err) {
		return
	}
	h.done(w, r, fmt.Sprintf("The holder of %s with token %d has been asked to release it. It learns of that within a third of "+
		"its TTL, and goes on until it releases. A program without holdfast does not learn of it.", shown(o.name), o.token), err)
}

// breakLock ends a grant against its holder's will.
func (h *console) breakLock(w http.ResponseWriter, r *http.Request) {
	o, ok := h.asked(w, r, true)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), readLimit)
	defer cancel()
	before, _ := h.c.Inspect(ctx, o.name)
	err := h.c.Break(ctx, o.name, o.token, o.words())
	if h.note("break", &o, err); h.refused(w, r, &o, err) {
		return
	}
	text := fmt.Sprintf("The grant of %s with token %d has ended. ", shown(o.name), o.token)
	for i := range before.Holders {
		switch x := &before.Holders[i]; {
		case x.Token != o.token:
		case x.Kept:
			text += "Nobody held it: it was only kept for a minimum hold."
		case foreign(x):
			text += "Its holder is another program, which may go on. End that program."
		default:
			text += fmt.Sprintf("Its holder, %s, learns of it at its next renewal. If it cannot reach the store, it may go on "+
				"for up to %s. Only a resource that checks tokens refuses its late writes.", who(x), short(x.Left))
		}
	}
	h.done(w, r, text, err)
}

// forget makes the next look at a name read it again.
func (l *looks) forget(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.list, name)
}
