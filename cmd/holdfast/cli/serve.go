package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/web"
	"github.com/holdfast-lock/holdfast/console"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/httpapi"
	"github.com/holdfast-lock/holdfast/open"
)

const aboutServe = `Show the locks of a store in a browser, until interrupted: what is held and who waits, one lock
and why it is stuck, who waits for whom with deadlocks, changes, elections, doctor's findings.

The console only reads, at an address of this machine alone. Every user of this machine can reach
that. Any other --listen needs users: --users FILE, with a line NAME:SECRET for each (mode 0600),
or one secret in $HOLDFAST_SERVE_TOKEN. A browser asks for name and secret; programs send the
secret as a bearer token. Use --tls-cert and --tls-key, or a proxy with TLS.

--allow-break lets users end a grant. It needs users, the name of the lock typed, and a reason.

--api also serves locks for programs in any language, below api/: sessions with heartbeats, acquire
by long poll, renew, release. GET api/v1/openapi.json describes it. Whoever reaches it may take locks.

On SIGTERM or SIGINT, serve grants and renews nothing more, and ends when no program trusts a lease
any longer, within --ttl. A second signal ends it at once; its leases then expire.`

// envServeToken has the secret of a single user of serve.
const envServeToken = "HOLDFAST_SERVE_TOKEN"

// serveFlags are the flags of serve.
type serveFlags struct {
	listen, base, users string
	hosts               []string
	cert, key           string
	allowBreak, api     bool
}

// maxConnections is how many connections serve has at a time. A live page and a long poll take one
// each.
const maxConnections = 20_000

func (a *app) serveCommand() *cobra.Command {
	var f serveFlags
	c := &cobra.Command{
		Use:   "serve",
		Short: "Show locks in a browser, and give locks to programs over HTTP",
		Long:  aboutServe,
		Example: `  holdfast serve --store redis://cache:6379
  holdfast serve --api --users /etc/holdfast/users --allow-break \
      --listen :7420 --tls-cert cert.pem --tls-key key.pem --host locks.example.com`,
		Args: noArguments,
		RunE: ours(func(c *cobra.Command, _ []string) error { return a.serve(&f) }),
	}
	flags := c.Flags()
	flags.StringVar(&f.listen, "listen", "127.0.0.1:7420", "`ADDRESS` to listen at; port 0: any that is free")
	flags.StringVar(&f.base, "base-path", "", "serve below this `PATH`, such as /locks")
	flags.StringArrayVar(&f.hosts, "host", nil, "`NAME` of this server in the addresses of browsers (repeatable)")
	flags.StringVar(&f.users, "users", "", "`FILE` with a line NAME:SECRET for each user")
	flags.StringVar(&f.cert, "tls-cert", "", "`FILE` with the certificate, for https")
	flags.StringVar(&f.key, "tls-key", "", "`FILE` with its key")
	flags.BoolVar(&f.allowBreak, "allow-break", false, "let users end grants")
	flags.BoolVar(&f.api, "api", false, "also give locks to programs over HTTP")
	return c
}

var (
	basePath = regexp.MustCompile(`^(/[A-Za-z0-9._~-]+)*$`)
	hostName = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)
)

func (a *app) serve(f *serveFlags) error {
	if !basePath.MatchString(f.base) {
		return usagef("--base-path %s: it begins with / and does not end with one, such as /locks", show(f.base))
	}
	for _, h := range f.hosts {
		if !hostName.MatchString(h) {
			return usagef("--host %s: it is a name without scheme, port and path, such as locks.example.com", show(h))
		}
	}
	if (f.cert == "") != (f.key == "") {
		return usagef("--tls-cert and --tls-key belong together")
	}
	users, err := f.readUsers()
	if err != nil {
		return &failure{exitConfig, err}
	}
	if f.allowBreak && users == nil {
		return usagef("--allow-break needs --users FILE, or a secret in $%s", envServeToken)
	}
	address, err := net.ResolveTCPAddr("tcp", f.listen)
	if err != nil {
		return usagef("--listen %s: %v", show(f.listen), err)
	}
	if !address.IP.IsLoopback() && users == nil {
		return usagef("--listen %s can be reached from other machines; that needs --users FILE, or a secret in $%s",
			show(f.listen), envServeToken)
	}
	var conf *tls.Config
	if f.cert != "" {
		pair, err := tls.LoadX509KeyPair(f.cert, f.key)
		if err != nil {
			return &failure{exitConfig, fmt.Errorf("--tls-cert: %w", err)}
		}
		conf = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	} else if !address.IP.IsLoopback() {
		a.say("secrets pass the network in the clear: use --tls-cert and --tls-key, or a proxy with TLS on this machine")
	}
	if !f.api {
		if err := open.Exists(a.url()); err != nil {
			return a.unopened(err, 0)
		}
	}
	a.keeps = f.api
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	return a.with(context.Background(), holdfast.Config{}, func(s *session) error {
		l, err := net.ListenTCP("tcp", address)
		if err != nil {
			return &failure{exitConfig, err}
		}
		v := a.server(f, s, users)
		if _, err := fmt.Fprintf(a.stdout, "%s://%s%s/\n", map[bool]string{false: "http", true: "https"}[conf != nil],
			l.Addr(), f.base); err != nil {
			_ = l.Close()
			return err
		}
		return v.run(l, conf, signals)
	})
}

func (f *serveFlags) readUsers() (*web.Users, error) {
	token := os.Getenv(envServeToken)
	switch {
	case f.users != "" && token != "":
		return nil, fmt.Errorf("--users and $%s contradict each other", envServeToken)
	case f.users != "":
		return web.ReadUsers(f.users)
	case token != "":
		u, err := web.OneUser(token)
		if err != nil {
			return nil, fmt.Errorf("$%s: %w", envServeToken, err)
		}
		return u, nil
	}
	return nil, nil
}

// server is a running serve.
type server struct {
	a       *app
	s       *session
	http    *http.Server
	api     *httpapi.Server // nil: there is none
	endless context.CancelFunc
}

func (a *app) server(f *serveFlags, s *session, users *web.Users) *server {
	logger := slog.New(slog.NewTextHandler(scrubbed{a}, nil))
	o := &console.Options{Place: s.place, Logger: logger, Doctor: func(ctx context.Context) ([]driver.Finding, error) {
		return s.store.Diagnose(ctx, a.url(), a.ttl)
	}}
	if f.allowBreak {
		o.MayChange = func(r *http.Request) (string, bool) { user := web.User(r); return user, user != "" }
	}
	v := &server{a: a, s: s}
	mux := http.NewServeMux()
	mux.Handle(f.base+"/", http.StripPrefix(f.base, console.Handler(s.Client, o)))
	if f.api {
		v.api = httpapi.New(s.Client, &httpapi.Config{Logger: logger})
		mux.Handle(f.base+"/api/", http.StripPrefix(f.base+"/api", v.api))
	}
	ctx, cancel := context.WithCancel(context.Background())
	v.endless = cancel
	v.http = &http.Server{
		Handler:           &web.Guard{Users: users, Hosts: f.hosts, Next: mux},
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    32 << 10,
		ErrorLog:          log.New(scrubbed{a}, "holdfast: ", 0),
	}
	return v
}

// run serves until a signal, and then ends in order.
func (v *server) run(l net.Listener, conf *tls.Config, signals <-chan os.Signal) error {
	l = web.Limit(l, maxConnections)
	failed := make(chan error, 1)
	go func() {
		if conf != nil {
			v.http.TLSConfig = conf
			failed <- v.http.ServeTLS(l, "", "")
		} else {
			failed <- v.http.Serve(l)
		}
	}()
	defer v.endless()
	select {
	case err := <-failed:
		v.s.keep = v.api != nil // as for errAtOnce
		return err
	case <-signals:
	}
	if v.api != nil {
		if err := v.drain(signals); err != nil {
			v.s.keep = true // programs may still trust what a close would free
			_ = v.http.Close()
			return err
		}
	}
	v.endless() // open pages
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	if err := v.http.Shutdown(ctx); err != nil {
		_ = v.http.Close()
	}
	return nil
}

// errAtOnce ends serve while programs may still trust leases.
var errAtOnce = errors.New("ended at once: the leases of programs expire")

func (v *server) drain(signals <-chan os.Signal) error {
	ctx, cancel := context.WithTimeout(context.Background(), v.s.TTL()+10*time.Second)
	defer cancel()
	drained := make(chan error, 1)
	go func() { drained <- v.api.Drain(ctx) }()
	warning := time.AfterFunc(time.Second, func() {
		v.a.say("ending when no program trusts a lease any longer, within %s; a second signal ends this at once",
			span(v.s.TTL()))
	})
	defer warning.Stop()
	select {
	case err := <-drained:
		return err
	case <-signals:
		return &failure{exitUnavailable, errAtOnce}
	}
}

// scrubbed writes lines of a log without the passwords of the store's URL.
type scrubbed struct{ a *app }

func (w scrubbed) Write(line []byte) (int, error) {
	_, err := fmt.Fprint(w.a.stderr, replaceHidden(open.Scrub(string(line), w.a.url()), escaped))
	return len(line), err
}
