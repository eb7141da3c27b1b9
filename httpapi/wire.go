package httpapi

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/plain"
)

// sessionHeader has the secret of the session. URLs are logged, so no secret is in one.
const sessionHeader = "Holdfast-Session"

// maxBody is how large the body of a request may be. The largest sensible one is a heartbeat with
// the leases of MaxRequests.
const maxBody = 64 << 10

// How long a body may take to arrive, and an answer to leave: the server reads the rest of a body first.
const (
	readLimit  = 10 * time.Second
	writeLimit = readLimit + 10*time.Second
)

// The modes of acquire.
const (
	modeExclusive = "exclusive"
	modeShared    = "shared"
	modePermits   = "permits"
)

// openIn is the body of v1/sessions.
type openIn struct {
	Client string `json:"client"`
}

// openOut is its answer.
type openOut struct {
	Session     string `json:"session"`
	TTLMS       int64  `json:"ttl_ms"`
	HeartbeatMS int64  `json:"heartbeat_ms"`
	TrustedMS   int64  `json:"trusted_ms"`
}

// heartbeatIn is the body of v1/sessions/heartbeat.
type heartbeatIn struct {
	Leases []string `json:"leases"`
}

// heartbeatOut is its answer, with a state for each lease, in the same order.
type heartbeatOut struct {
	TrustedMS int64   `json:"trusted_ms"`
	Draining  bool    `json:"draining,omitempty"`
	Leases    []state `json:"leases"`
}

// state is a lease, or what became of it.
type state struct {
	*leaseOut
	Error *problem `json:"error,omitempty"`
}

// acquireIn is the body of v1/acquire.
type acquireIn struct {
	Request uint64            `json:"request"`
	Name    string            `json:"name"`
	Mode    string            `json:"mode"`
	Permits int               `json:"permits"`
	Limit   int               `json:"limit"`
	Wait    *bool             `json:"wait"`
	PollMS  *int64            `json:"poll_ms"`
	Note    string            `json:"note"`
	Labels  map[string]string `json:"labels"`
}

// sum returns a hash of what in asks for. The time of the poll does not count.
func (in *acquireIn) sum() [sha256.Size]byte {
	x := *in
	waits := x.Wait == nil || *x.Wait
	x.Wait, x.PollMS = &waits, nil
	text, err := json.Marshal(x) // with the labels in order
	if err != nil {
		panic(err) // it has texts and numbers
	}
	return sha256.Sum256(text)
}

// leaseOut is a lease. trusted_ms counts from when the program sent the request.
type leaseOut struct {
	Request   uint64 `json:"request"`
	Name      string `json:"name"`
	Token     string `json:"token"` // as text: some languages read numbers as floating point
	Lease     string `json:"lease,omitempty"`
	TrustedMS int64  `json:"trusted_ms"`
	Asked     string `json:"asked_to_release,omitempty"` // who asks, and why
}

// waitingOut says that the program should ask again.
type waitingOut struct {
	Waiting bool        `json:"waiting"`
	Queue   int         `json:"queue,omitempty"`
	Holders []holderOut `json:"holders,omitempty"`
}

// leaseIn is the body of v1/renew and v1/release.
type leaseIn struct {
	Lease string `json:"lease"`
}

// cancelIn is the body of v1/cancel.
type cancelIn struct {
	Request uint64 `json:"request"`
}

// problem is what is wrong, for programs and for people.
type problem struct {
	status  int
	open    bool   // the outcome is open, or the store failed: a repeat may succeed
	Code    string `json:"code"`
	Message string `json:"message"`
	Reason  string `json:"reason,omitempty"` // why a lease was lost
}

var (
	errSession = &problem{status: http.StatusGone, Code: "no_such_session",
		Message: "there is no such session: it was ended, or nothing was heard of it for a TTL, or the server was restarted; " +
			"its leases are no longer yours"}
	errDraining = &problem{status: http.StatusServiceUnavailable, Code: "draining",
		Message: "this server is about to end, and grants and renews nothing"}
	errCancelled = &problem{status: http.StatusGone, Code: "cancelled", Message: "this request was cancelled"}
	errReleased  = &problem{status: http.StatusGone, Code: "released", Message: "this lease was released"}
)

// lostProblem returns the answer about a lease that has ended, or whose release failed.
func lostProblem(err error) *problem {
	var e *holdfast.Error
	if errors.As(err, &e) && errors.Is(err, holdfast.ErrLost) {
		p := &problem{status: http.StatusGone, Code: "lost", Reason: string(e.Reason),
			Message: "the lease was lost: do not write any more; somebody else may have the lock"}
		if e.Reason == holdfast.ReasonMaxHold {
			p.Reason = "not renewed"
		}
		if e.Notice != nil {
			p.Message += "; it was broken by " + plain.Line(e.Notice.String())
		}
		return p
	}
	if errors.Is(err, holdfast.ErrReleased) {
		return errReleased
	}
	return storeProblem(err)
}

// storeProblem returns the answer for an error of the library. What the store itself said goes to
// the log only: it may name servers.
func storeProblem(err error) *problem {
	switch {
	case errors.Is(err, holdfast.ErrHeld):
		return &problem{status: http.StatusConflict, Code: "busy", Message: "the lock is not free"}
	case errors.Is(err, holdfast.ErrKind):
		return &problem{status: http.StatusConflict, Code: "kind",
			Message: "the name is in use as another kind of lock, or with another limit"}
	case errors.Is(err, holdfast.ErrInvalid):
		return invalid("%s", plain.Line(err.Error()))
	case errors.Is(err, holdfast.ErrDamaged):
		return &problem{status: http.StatusInternalServerError, Code: "damaged",
			Message: "the store's record of this name cannot be read; an operator has to remove it"}
	case errors.Is(err, holdfast.ErrRefused):
		return &problem{status: http.StatusBadGateway, Code: "refused", open: true,
			Message: "the store refuses this server; its log says why"}
	case errors.Is(err, holdfast.ErrClosed):
		return &problem{status: http.StatusServiceUnavailable, Code: "draining", open: true, Message: errDraining.Message}
	case errors.Is(err, holdfast.ErrUncertain):
		return &problem{status: http.StatusServiceUnavailable, Code: "uncertain", open: true,
			Message: "the store did not answer: what was done is undone, or ends within a TTL"}
	}
	return &problem{status: http.StatusServiceUnavailable, Code: "store_unavailable", open: true,
		Message: "the store cannot be reached"}
}

// readProblem returns the answer for an error of a call that only reads: no outcome is open then.
func readProblem(err error) *problem {
	if errors.Is(err, holdfast.ErrUncertain) {
		return &problem{status: http.StatusServiceUnavailable, Code: "store_unavailable", open: true,
			Message: "the store did not answer"}
	}
	return storeProblem(err)
}

func invalid(format string, args ...any) *problem {
	return &problem{status: http.StatusBadRequest, Code: "invalid", Message: fmt.Sprintf(format, args...)}
}

// boundBody makes the body of a request, if it has one, fail if it has not arrived in time. The server
// reads what a handler has left of it before it sends the answer, so a slow body would keep every
// answer, also a refusal, and its connection.
func boundBody(w http.ResponseWriter, r *http.Request) {
	if r.Body != nil && r.Body != http.NoBody {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(readLimit))
	}
}

// read decodes the body of a request, which must be one JSON object with known fields.
func read(w http.ResponseWriter, r *http.Request, into any) *problem {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return &problem{status: http.StatusUnsupportedMediaType, Code: "media_type",
			Message: "the header Content-Type must be application/json"}
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err == nil {
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // a long poll may take longer
	}
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return &problem{status: http.StatusRequestEntityTooLarge, Code: "too_large",
			Message: fmt.Sprintf("the body has more than %d bytes", maxBody)}
	case err != nil:
		return invalid("the body could not be read")
	case !utf8.Valid(body):
		return invalid("the body is not valid UTF-8")
	case loneSurrogate(body):
		return invalid(`the body has an escape such as \ud800 that is half of a character`)
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return malformed(err, into)
	}
	if _, err := d.Token(); err != io.EOF {
		return invalid("the body has more than one JSON value")
	}
	if bytes.HasPrefix(bytes.TrimSpace(body), []byte("null")) {
		return invalid("the body is null; it must be a JSON object")
	}
	return nil
}

// loneSurrogate reports whether a string of JSON has a surrogate without its other half. The decoder
// would replace it by U+FFFD, so two names would become one.
func loneSurrogate(body []byte) bool {
	inside := false
	for i := 0; i < len(body); i++ {
		switch {
		case body[i] == '"':
			inside = !inside
		case !inside || body[i] != '\\':
		case surrogate(body[i:], "89abAB") && surrogate(body[min(i+6, len(body)):], "cdefCDEF"):
			i += 11
		case surrogate(body[i:], "89abcdefABCDEF"):
			return true
		default:
			i++ // the escaped character
		}
	}
	return false
}

// surrogate reports whether b begins with \uDx.., where x is one of third.
func surrogate(b []byte, third string) bool {
	return len(b) >= 6 && b[0] == '\\' && b[1] == 'u' && (b[2] == 'd' || b[2] == 'D') &&
		strings.IndexByte(third, b[3]) >= 0
}

// write sends an answer. Hidden characters are escaped, so that it also is safe for a terminal.
func write(w http.ResponseWriter, status int, answer any) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(answer); err != nil { // it has texts, numbers and maps of texts
		status, b = http.StatusInternalServerError, bytes.Buffer{}
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeLimit))
	w.WriteHeader(status)
	_, _ = io.WriteString(w, plain.EscapeJSON(b.String()))
}

// refuse sends a problem.
func refuse(w http.ResponseWriter, p *problem) {
	switch {
	case p.status == http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", sessionHeader)
	case p.status == http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", "1")
	}
	write(w, p.status, struct {
		Error *problem `json:"error"`
	}{p})
}
