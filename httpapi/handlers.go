package httpapi

import (
	"context"
	_ "embed"
	"net/http"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

//go:embed openapi.json
var openAPI []byte

// routes returns the handler of all paths.
func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	post := func(path string, f func(http.ResponseWriter, *http.Request, time.Time)) {
		mux.HandleFunc("POST /v1/"+path, func(w http.ResponseWriter, r *http.Request) { f(w, r, s.now()) })
	}
	post("sessions", s.openSession)
	post("sessions/heartbeat", s.heartbeat)
	post("sessions/end", s.endSession)
	post("acquire", s.acquire)
	post("cancel", s.cancelRequest)
	post("renew", s.renewLease)
	post("release", s.releaseLease)
	mux.HandleFunc("GET /v1/lock", s.inspect)
	mux.HandleFunc("GET /v1/locks", s.list)
	mux.HandleFunc("GET /v1/openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(openAPI)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, &problem{status: http.StatusNotFound, Code: "no_such_path",
			Message: "there is no such path or method; GET v1/openapi.json lists them"})
	})
	guard := http.NewCrossOriginProtection()
	guard.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, &problem{status: http.StatusForbidden, Code: "cross_origin",
			Message: "a browser sent this request for another site"})
	}))
	return guard.Handler(mux)
}

// called returns the session of a request, and decodes its body. The request counts as a sign of
// life of the session.
func (s *Server) called(w http.ResponseWriter, r *http.Request, arrived time.Time, body any) *session {
	p := read(w, r, body)
	var ss *session
	if p == nil {
		ss, p = s.find(r)
	}
	if p == nil {
		p = ss.touch(arrived)
	}
	if p != nil {
		refuse(w, p)
		return nil
	}
	return ss
}

func (s *Server) openSession(w http.ResponseWriter, r *http.Request, arrived time.Time) {
	var in openIn
	p := read(w, r, &in)
	if p == nil && len(in.Client) > 256 {
		p = invalid("client has %d bytes; at most 256 are allowed", len(in.Client))
	}
	var ss *session
	var secret string
	if p == nil {
		ss, secret, p = s.add(in.Client, arrived)
	}
	if p != nil {
		refuse(w, p)
		return
	}
	ttl := s.c.TTL()
	write(w, http.StatusCreated, openOut{Session: secret, TTLMS: ttl.Milliseconds(),
		HeartbeatMS: (ttl / 3).Milliseconds(), TrustedMS: ss.left(s.now()).Milliseconds()})
}

func (s *Server) endSession(w http.ResponseWriter, r *http.Request, arrived time.Time) {
	var in struct{}
	ss := s.called(w, r, arrived, &in)
	if ss == nil {
		return
	}
	write(w, http.StatusOK, map[string]int{"released": ss.end(false)})
}

func (s *Server) heartbeat(w http.ResponseWriter, r *http.Request, arrived time.Time) {
	var in heartbeatIn
	ss := s.called(w, r, arrived, &in)
	if ss == nil {
		return
	}
	if len(in.Leases) > s.cfg.MaxRequests {
		refuse(w, invalid("%d leases; at most %d are allowed", len(in.Leases), s.cfg.MaxRequests))
		return
	}
	found, problems := make([]*request, len(in.Leases)), make([]*problem, len(in.Leases))
	parallel(len(in.Leases), func(i int) {
		if found[i], problems[i] = ss.byLease(in.Leases[i]); problems[i] == nil {
			ss.renew(found[i], arrived)
		}
	})
	out := heartbeatOut{Draining: s.isDraining(), Leases: make([]state, len(in.Leases))}
	for i, q := range found { // after all exchanges: see trusted
		x := &out.Leases[i]
		x.Error = problems[i]
		if x.Error == nil {
			var lease leaseOut
			if lease, x.Error = ss.state(q, arrived); x.Error == nil {
				x.leaseOut = &lease
			}
		}
	}
	now := s.now()
	if out.TrustedMS = (now.Sub(arrived)*trustTenths/10 + ss.left(now)).Milliseconds(); ss.left(now) == 0 {
		out.TrustedMS = 0
	}
	write(w, http.StatusOK, out)
}

// parallel calls f with 0 to n-1, some at a time.
func parallel(n int, f func(int)) {
	const atOnce = 16
	next := make(chan int)
	done := make(chan struct{})
	workers := min(n, atOnce)
	for range workers {
		go func() {
			for i := range next {
				f(i)
			}
			done <- struct{}{}
		}()
	}
	for i := range n {
		next <- i
	}
	close(next)
	for range workers {
		<-done
	}
}

func (s *Server) acquire(w http.ResponseWriter, r *http.Request, arrived time.Time) {
	var in acquireIn
	ss := s.called(w, r, arrived, &in)
	if ss == nil {
		return
	}
	p := in.check()
	var q *request
	var a *attempt
	if p == nil {
		q, a, p = ss.join(&in)
	}
	if p != nil {
		refuse(w, p)
		return
	}
	poll := ss.poll()
	if in.PollMS != nil {
		poll = min(poll, time.Duration(*in.PollMS)*time.Millisecond)
	}
	timer := time.NewTimer(poll)
	defer timer.Stop()
	draining := s.draining
	if ss.leaseOf(q) != nil {
		draining = nil // it is told what it has
	}
	gone := false
	defer func() { ss.unjoin(q, a, gone) }()
	select {
	case <-a.done:
		s.answerAcquire(w, ss, q, a, arrived)
	case <-timer.C:
		write(w, http.StatusAccepted, s.waiting(r.Context(), in.Name))
	case <-r.Context().Done():
		gone = true
	case <-ss.ctx.Done():
		gone = true
		refuse(w, errSession)
	case <-draining:
		gone = true
		refuse(w, errDraining)
	}
}

// answerAcquire answers when the attempt has ended. A lease that was taken a while ago is renewed:
// the program has asked for it again.
func (s *Server) answerAcquire(w http.ResponseWriter, ss *session, q *request, a *attempt, arrived time.Time) {
	if a.fail != nil {
		refuse(w, a.fail)
		return
	}
	if l := ss.leaseOf(q); l != nil && ss.trusted(l, arrived) < s.c.TTL()*2/3 {
		ss.renew(q, arrived)
	}
	out, p := ss.state(q, arrived)
	if p != nil {
		refuse(w, p)
		return
	}
	if out.Lease = ss.hear(q); out.Lease == "" {
		refuse(w, errCancelled)
		return
	}
	write(w, http.StatusOK, out)
}

// hear returns the secret of the lease of q, for an answer; "" if q was withdrawn or abandoned.
func (ss *session) hear(q *request) string {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if q.final != nil || ss.requests[q.number] != q {
		return ""
	}
	q.heard = true
	return q.secret
}

// waiting says who is in the way, if the store says so soon.
func (s *Server) waiting(ctx context.Context, name string) waitingOut {
	out := waitingOut{Waiting: true}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if rec, err := s.c.Inspect(ctx, name); err == nil {
		out.Queue = rec.Waiting
		out.Holders = holders(rec.Holders[:min(len(rec.Holders), 10)])
	}
	return out
}

const (
	maxRequest = 1 << 53 // larger numbers are not exact in every language
	maxPoll    = 1 << 31 // milliseconds
)

// check returns what is wrong with in, beyond what the library checks.
func (in *acquireIn) check() *problem {
	if in.Mode == "" {
		in.Mode = modeExclusive
	}
	switch {
	case in.Request == 0 || in.Request > maxRequest:
		return invalid("request: %d is given; allowed is %s, larger for each new request", in.Request, allowed["request"])
	case in.Mode != modeExclusive && in.Mode != modeShared && in.Mode != modePermits:
		return invalid("mode: %q is given; allowed are %s, %s and %s", in.Mode, modeExclusive, modeShared, modePermits)
	case in.Mode != modePermits && (in.Permits != 0 || in.Limit != 0):
		return invalid("permits and limit are for the mode %s", modePermits)
	case in.Mode == modePermits && (in.Permits < 0 || in.Permits > driver.MaxLimit):
		return invalid("permits: %d is given; allowed is %s", in.Permits, allowed["permits"])
	case in.Mode == modePermits && (in.Limit < 0 || in.Limit > driver.MaxLimit):
		return invalid("limit: %d is given; allowed is %s", in.Limit, allowed["limit"])
	case in.PollMS != nil && (*in.PollMS < 0 || *in.PollMS > maxPoll):
		return invalid("poll_ms: %d is given; allowed is %s", *in.PollMS, allowed["poll_ms"])
	}
	if in.Mode == modePermits && in.Permits == 0 {
		in.Permits = 1
	}
	for k := range in.Labels {
		if k == LabelSession || k == LabelClient || k == "" {
			return invalid("the label %q is not allowed", k)
		}
	}
	return nil
}

func (s *Server) cancelRequest(w http.ResponseWriter, r *http.Request, arrived time.Time) {
	var in cancelIn
	ss := s.called(w, r, arrived, &in)
	if ss == nil {
		return
	}
	p := (*problem)(nil)
	if in.Request == 0 || in.Request > maxRequest {
		p = invalid("request: %d is given; allowed is %s, that of the request to cancel", in.Request, allowed["request"])
	} else {
		p = ss.withdraw(r.Context(), in.Request)
	}
	if p != nil {
		refuse(w, p)
		return
	}
	write(w, http.StatusOK, map[string]bool{"cancelled": true})
}

func (s *Server) renewLease(w http.ResponseWriter, r *http.Request, arrived time.Time) {
	var in leaseIn
	ss := s.called(w, r, arrived, &in)
	if ss == nil {
		return
	}
	q, p := ss.byLease(in.Lease)
	var out leaseOut
	if p == nil {
		ss.renew(q, arrived)
		out, p = ss.state(q, arrived)
	}
	if p != nil {
		refuse(w, p)
		return
	}
	write(w, http.StatusOK, out)
}

func (s *Server) releaseLease(w http.ResponseWriter, r *http.Request, arrived time.Time) {
	var in leaseIn
	ss := s.called(w, r, arrived, &in)
	if ss == nil {
		return
	}
	q, p := ss.byLease(in.Lease)
	if p == nil {
		p = ss.release(q, errReleased)
	}
	if p != nil {
		refuse(w, p)
		return
	}
	write(w, http.StatusOK, map[string]bool{"released": true})
}
