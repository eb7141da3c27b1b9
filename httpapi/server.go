package httpapi

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast"
)

// Config limits a Server. The zero value, or nil, is ready to use.
type Config struct {
	// MaxSessions is how many API sessions may be open; default 10,000. A session that sends nothing
	// is over after a TTL.
	MaxSessions int

	// MaxRequests is how many leases and waits one session may have at a time; default 1,000.
	MaxRequests int

	// MaxWaits is how many requests may wait in queues, of all sessions; default 10,000.
	MaxWaits int

	// Logger gets the store's errors, which callers see in general words only. Default: none.
	Logger *slog.Logger
}

// Server is the API on one client. It is an http.Handler with paths that begin with /v1/; use
// http.StripPrefix if they begin with more. It is safe for concurrent use.
type Server struct {
	c     *holdfast.Client
	cfg   Config
	mux   http.Handler
	ends  chan struct{} // a slot for each release by the end of a session
	waits chan struct{} // a slot for each request that waits
	now   func() time.Time

	draining chan struct{} // closed by Drain
	drain    sync.Once

	mu       sync.Mutex
	sessions map[key]*session
	logs     map[string]*window // by text
	none     chan struct{}      // closed when a draining server has no session
}

// key is the hash of a secret. A search by hash takes no time that depends on how much of a guess
// is right.
type key [sha256.Size]byte

func keyOf(secret string) key { return sha256.Sum256([]byte(secret)) }

// newSecret returns a text of 130 random bits.
func newSecret() string { return strings.ToLower(rand.Text()) }

// New returns a Server. The caller closes the client, after Drain. The TTL of sessions is that of
// the client.
func New(c *holdfast.Client, cfg *Config) *Server {
	if cfg == nil {
		cfg = &Config{}
	}
	s := &Server{c: c, cfg: *cfg, ends: make(chan struct{}, 64), draining: make(chan struct{}), now: time.Now,
		sessions: map[key]*session{}, logs: map[string]*window{}, none: make(chan struct{})}
	s.cfg.MaxSessions = cmp.Or(cfg.MaxSessions, 10_000)
	s.cfg.MaxRequests = cmp.Or(cfg.MaxRequests, 1000)
	s.cfg.MaxWaits = cmp.Or(cfg.MaxWaits, 10_000)
	s.waits = make(chan struct{}, s.cfg.MaxWaits)
	s.mux = s.routes()
	return s
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	boundBody(w, r)
	s.mux.ServeHTTP(w, r)
}

// Drain ends all waits, refuses new sessions and requests, and gives no more trust. It returns when
// every session has been ended or is over, which takes a TTL at most, or with the error of ctx.
// Meanwhile programs can still release. The client must not be closed before: closing frees names
// whose leases programs still trust.
func (s *Server) Drain(ctx context.Context) error {
	s.drain.Do(func() {
		close(s.draining)
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.sessions) == 0 {
			close(s.none)
		}
	})
	select {
	case <-s.none:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Server) isDraining() bool {
	select {
	case <-s.draining:
		return true
	default:
		return false
	}
}

// add opens a session. It returns nil if there are too many, or the server drains.
func (s *Server) add(client string, arrived time.Time) (ss *session, secret string, fail *problem) {
	secret = newSecret()
	ss = newSession(s, keyOf(secret), client, arrived)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.isDraining():
		fail = errDraining
	case len(s.sessions) >= s.cfg.MaxSessions:
		fail = &problem{status: http.StatusServiceUnavailable, Code: "too_many_sessions",
			Message: "this server has as many sessions as it allows; end sessions that are no longer used"}
	default:
		s.sessions[ss.key] = ss
		ss.arm()
		return ss, secret, nil
	}
	ss.cancel()
	return nil, "", fail
}

// find returns the session that a request names.
func (s *Server) find(r *http.Request) (*session, *problem) {
	secret := r.Header.Get(sessionHeader)
	if secret == "" {
		return nil, &problem{status: http.StatusUnauthorized, Code: "no_session",
			Message: "the header " + sessionHeader + " is missing; POST v1/sessions opens a session"}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if ss := s.sessions[keyOf(secret)]; ss != nil {
		return ss, nil
	}
	return nil, errSession
}

// remove forgets a session that is over.
func (s *Server) remove(ss *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sessions[ss.key] != ss {
		return
	}
	delete(s.sessions, ss.key)
	if len(s.sessions) == 0 && s.isDraining() {
		close(s.none)
	}
}

// log reports an error of the store, whose text may be of no use to callers, or not be for them. An outage
// fails every renewal of every program, so each text has a bounded number of lines.
func (s *Server) log(text string, err error) {
	if s.cfg.Logger == nil {
		return
	}
	attrs := []any{"err", err}
	s.mu.Lock()
	w := s.logs[text]
	if w == nil {
		w = &window{}
		s.logs[text] = w
	}
	left, ok := w.next(s.now())
	s.mu.Unlock()
	if !ok {
		return
	}
	if left > 0 {
		attrs = append(attrs, "left_out", left)
	}
	s.cfg.Logger.Warn("httpapi: "+text, attrs...)
}

// Each text has 20 lines in 10 s, as with observe.Log.
const (
	logLines  = 20
	logWindow = 10 * time.Second
)

// window counts the lines of one text.
type window struct {
	began           time.Time
	logged, leftOut int
}

// next reports whether there may be another line, and how many lines were left out before it.
func (w *window) next(now time.Time) (left int, ok bool) {
	if now.Sub(w.began) >= logWindow {
		w.began, w.logged = now, 0
	}
	if w.logged == logLines {
		w.leftOut++
		return 0, false
	}
	w.logged++
	left, w.leftOut = w.leftOut, 0
	return left, true
}
