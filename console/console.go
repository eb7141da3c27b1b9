package console

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"html/template"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/plain"
)

// Options adjusts the console. The zero value, or nil, is ready to use: a console that only reads.
type Options struct {
	// Place says which store this is, in the head of each page. It must not have a password.
	Place string

	// MayChange returns the name of the caller and true if the caller may take locks away from
	// their holders. It must have authenticated the caller. Default: nobody may.
	MayChange func(*http.Request) (user string, ok bool)

	// Doctor examines the store, for the page of that name. It is called when somebody looks, at
	// most once in five minutes. Default: there is no such page.
	Doctor func(context.Context) ([]driver.Finding, error)

	// Every is the pause between two readings while somebody looks; default 2 s. A pause is at
	// least four times as long as the reading took.
	Every time.Duration

	// MaxLocks is how many names a reading has; default 20,000. The pages say if there are more.
	MaxLocks int

	// MaxViewers is how many pages may be open and live; default 200. Others have to be loaded
	// again by hand.
	MaxViewers int

	// Logger gets a record of each lock that somebody takes away, and the store's errors. Default:
	// none.
	Logger *slog.Logger
}

// Handler returns the console on c. Its paths begin with /; use http.StripPrefix to serve it below
// another path, which must end with a slash. It is safe for concurrent use. It reads the store only
// while somebody looks, so it needs no end.
//
// It sends a strict content security policy, and refuses changes that a browser sends for another
// site. Whoever reaches it may read it.
func Handler(c *holdfast.Client, o *Options) http.Handler {
	if o == nil {
		o = &Options{}
	}
	h := &console{c: c, o: *o}
	h.o.Every = cmp.Or(o.Every, 2*time.Second)
	h.o.MaxLocks = cmp.Or(o.MaxLocks, 20_000)
	h.o.MaxViewers = cmp.Or(o.MaxViewers, 200)
	h.reader = &reader{c: c, o: &h.o, began: time.Now(), slot: make(chan struct{}, 1)}
	h.looks = &looks{c: c}
	h.exam = &examination{run: h.o.Doctor}
	return h.routes()
}

// console is the handler's state.
type console struct {
	c      *holdfast.Client
	o      Options
	reader *reader
	looks  *looks
	exam   *examination
}

//go:embed static templates
var files embed.FS

// pages are parsed when they are first used: most runs of a program that can serve them do not.
var pages = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("").Funcs(template.FuncMap{
		"plural": plural, "asset": versioned, "place": func(i int) int { return i + 1 },
	}).ParseFS(files, "templates/*.html"))
})

// assets are the style and the script, with a version of their content in the address.
var assets = sync.OnceValue(func() map[string][]byte {
	all := map[string][]byte{}
	for _, name := range []string{"style.css", "script.js", "icon.svg"} {
		text, err := files.ReadFile("static/" + name)
		if err != nil {
			panic(err) // they are embedded
		}
		all[name] = text
	}
	return all
})

func versioned(name string) string {
	sum := sha256.Sum256(assets()[name])
	return "static/" + name + "?v=" + hex.EncodeToString(sum[:6])
}

func (h *console) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", h.now)
	mux.HandleFunc("GET /lock", h.lock)
	mux.HandleFunc("GET /graph", h.graph)
	mux.HandleFunc("GET /history", h.history)
	mux.HandleFunc("GET /elections", h.elections)
	mux.HandleFunc("GET /store", h.store)
	mux.HandleFunc("GET /events", h.events)
	mux.HandleFunc("POST /break", h.breakLock)
	mux.HandleFunc("POST /revoke", h.revoke)
	for name, text := range assets() {
		kind := map[string]string{"style.css": "text/css; charset=utf-8", "script.js": "text/javascript; charset=utf-8",
			"icon.svg": "image/svg+xml"}[name]
		mux.HandleFunc("GET /static/"+name, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", kind)
			w.Header().Set("Cache-Control", "private, max-age=86400")
			_, _ = w.Write(text)
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		h.fail(w, r, http.StatusNotFound, "There is no such page.")
	})
	guard := http.NewCrossOriginProtection()
	guard.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.fail(w, r, http.StatusForbidden, "A browser sent this request for another site. Nothing was done.")
	}))
	inner := guard.Handler(mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		protect(w.Header())
		if r.Body != nil && r.Body != http.NoBody { // the server reads a body before it sends an answer
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(formLimit))
		}
		inner.ServeHTTP(w, r)
	})
}

// protect sets the headers of every answer. Neither a page nor a text in it can load or send
// anything elsewhere, and no other site can frame or read it.
func protect(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "+
		"connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'; "+
		"require-trusted-types-for 'script'; trusted-types 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "same-origin") // browsers send no Origin without it
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// page is what every page has.
type page struct {
	Title   string
	Tab     string
	Place   string
	Read    string // the time of the reading
	Stale   string // why it is not current; "": it is
	Names   int
	Waiting int
	Cut     int // the reading has only so many names; 0: all
	Knots   int // deadlocks
	Doctor  bool
	User    string // may change
	Live    bool
	Status  int
	Body    any
}

// frame returns a page about a reading.
func (h *console) frame(r *http.Request, tab, title string, s *snapshot) *page {
	p := &page{Title: title, Tab: tab, Place: plain.Line(h.o.Place), Doctor: h.o.Doctor != nil, Live: true,
		Status: http.StatusOK}
	if h.o.MayChange != nil {
		if user, ok := h.o.MayChange(r); ok {
			p.User = shown(cmp.Or(user, "you"))
		}
	}
	if s != nil {
		p.Names, p.Waiting, p.Stale = len(s.records), s.waiting, s.stale()
		p.Knots = len(s.graph.knots)
		if !s.at.IsZero() {
			p.Read = s.at.Format(time.TimeOnly)
		}
		if s.more {
			p.Cut = len(s.records)
		}
	}
	return p
}

// show writes a page.
func (h *console) show(w http.ResponseWriter, name string, p *page) {
	var b bytes.Buffer
	if err := pages().ExecuteTemplate(&b, name, p); err != nil {
		h.log("page "+name, err)
		http.Error(w, "This page has a fault; the log says which.", http.StatusInternalServerError)
		return
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(30 * time.Second))
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(p.Status)
	_, _ = w.Write(b.Bytes())
}

// fail writes a page with one sentence.
func (h *console) fail(w http.ResponseWriter, r *http.Request, status int, text string) {
	p := h.frame(r, "", http.StatusText(status), nil)
	p.Live, p.Status, p.Body = false, status, text
	h.show(w, "message.html", p)
}

func (h *console) log(text string, err error) {
	if h.o.Logger != nil {
		h.o.Logger.Warn("console: "+text, "err", err)
	}
}
