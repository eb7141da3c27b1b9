package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/plain"
)

// maxForm is how large a form may be, and maxReason how long a reason.
const (
	maxForm   = 16 << 10
	maxReason = 500
)

// order is what a form asks for: the end of one grant.
type order struct {
	user, name, reason string
	token              uint64
}

// asked returns the order of a form, or writes what is wrong with it. The name and the token are in
// the address, because browsers change line ends in forms. The address alone does nothing.
func (h *console) asked(w http.ResponseWriter, r *http.Request) (o order, ok bool) {
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
	o.name = r.URL.Query().Get("name")
	o.reason = strings.TrimSpace(r.PostForm.Get("reason"))
	var err error
	o.token, err = strconv.ParseUint(r.URL.Query().Get("token"), 10, 64)
	switch {
	case err != nil || o.token == 0 || o.name == "":
		return refuse(http.StatusBadRequest, "The name or the token is missing.")
	case r.PostForm.Get("typed") != shown(o.name):
		return refuse(http.StatusBadRequest, "The name that was typed is not "+shown(o.name)+".")
	case o.reason == "":
		return refuse(http.StatusBadRequest, "The reason is missing.")
	case len(o.reason) > maxReason:
		return refuse(http.StatusBadRequest, fmt.Sprintf("The reason has more than %d bytes.", maxReason))
	}
	return o, true
}

// breakLock ends a grant against its holder's will.
func (h *console) breakLock(w http.ResponseWriter, r *http.Request) {
	o, ok := h.asked(w, r)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), readLimit)
	defer cancel()
	before, _ := h.c.Inspect(ctx, o.name)
	err := h.c.Break(ctx, o.name, o.token)
	if h.o.Logger != nil {
		h.o.Logger.Warn("console: break", "user", o.user, "lock", o.name, "token", o.token, "reason", o.reason, "err", err)
	}
	h.looks.forget(o.name)
	token := strconv.FormatUint(o.token, 10)
	switch {
	case errors.Is(err, holdfast.ErrGone):
		h.fail(w, r, http.StatusConflict, "No grant of "+shown(o.name)+" has token "+token+" any more. Nothing was done.")
		return
	case errors.Is(err, holdfast.ErrInvalid):
		h.fail(w, r, http.StatusBadRequest, plain.Line(err.Error())+". Nothing was done.")
		return
	case errors.Is(err, holdfast.ErrUncertain):
		h.fail(w, r, http.StatusBadGateway, "The store did not answer. Whether the grant has ended is not known: look again.")
		return
	case err != nil:
		h.fail(w, r, http.StatusBadGateway, "The grant was not ended: "+reason(err)+".")
		return
	}
	text := "The grant of " + shown(o.name) + " with token " + token + " has ended. "
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
	p := h.frame(r, "", "Done", nil)
	p.Live, p.Body = false, text
	h.show(w, "message.html", p)
}

// forget makes the next look at a name read it again.
func (l *looks) forget(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.list, name)
}
