package fencehttp

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"maps"
	"net/http"

	"github.com/holdfast-lock/holdfast/fence"
)

// TxGuard is a Guard that runs the handler in an SQL transaction, which begins with the token
// (fence.Begin). The handler gets the transaction by [Tx], and must not end it. If the handler
// answers with a status below 400, the transaction is committed; otherwise, and if the handler
// panics, it is rolled back, and the token is as before.
//
// The handler must give up, with a status from 400 on, at the first error of a statement: see
// fence.Begin.
//
// The client gets no answer before the commit. So the answer is kept in memory until then. If the
// commit fails, the client gets 503 or 500 in its place; after 500 the commit may have happened.
// Until the transaction ends, other requests for the resource wait in the database.
type TxGuard struct {
	DB       *sql.DB
	Dialect  fence.Dialect
	Options  *sql.TxOptions // nil: the database's defaults
	Resource func(*http.Request) (string, error)
	Header   string // "": Header
}

type txKey struct{}

// Tx returns the transaction of a request that came through a TxGuard, or nil.
func Tx(ctx context.Context) *sql.Tx {
	tx, _ := ctx.Value(txKey{}).(*sql.Tx)
	return tx
}

// Handler returns next behind the guard.
func (g *TxGuard) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		resource, token, err := read(r, g.Header, g.Resource)
		var tx *sql.Tx
		if err == nil {
			tx, err = g.DB.BeginTx(r.Context(), g.Options)
			err = failed(g.Dialect, err)
		}
		if err != nil {
			refuse(w, err)
			return
		}
		defer func() { _ = tx.Rollback() }() // for a panic; else it has ended
		if err := fence.Begin(r.Context(), tx, g.Dialect, resource, token); err != nil {
			refuse(w, err)
			return
		}
		a := &answer{header: http.Header{}}
		next.ServeHTTP(a, r.WithContext(context.WithValue(r.Context(), txKey{}, tx)))
		if a.status < http.StatusBadRequest {
			err := tx.Commit()
			if errors.Is(err, sql.ErrTxDone) { // the handler has ended it, or the request's context has
				err = errEnded
			}
			if err != nil {
				refuse(w, failed(g.Dialect, err))
				return
			}
		} else {
			_ = tx.Rollback() // before the answer: a slow client must not keep the resource locked
		}
		a.send(w)
	})
}

var errEnded = errors.New("the transaction had ended before the commit")

// answer is a response that is kept until the commit.
type answer struct {
	header http.Header
	sent   http.Header // as it was at WriteHeader
	status int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) {
	if a.sent == nil && status >= 200 { // an informational answer before it is dropped
		a.status, a.sent = status, a.header.Clone()
	}
}

func (a *answer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(p)
}

func (a *answer) send(w http.ResponseWriter) {
	a.WriteHeader(http.StatusOK)
	maps.Copy(w.Header(), a.sent)
	w.WriteHeader(a.status)
	_, _ = a.body.WriteTo(w) // the client may have gone
}
