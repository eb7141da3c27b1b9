// Package httpapi gives locks to programs in any language, over HTTP and JSON: sessions with
// heartbeats, acquire by long poll, renew, release, and the state of names. A [Server] is an
// http.Handler on one holdfast.Client. GET v1/openapi.json describes the API; docs/http-api.md
// explains it, and docs/adr/0014-http-api.md has the orders of events that it withstands.
//
// A Server does not know its callers: whoever reaches it may take locks. Authentication, TLS, and
// the limit on connections belong in front of it; "holdfast serve" has them. A Server refuses
// requests that a browser sends for another site.
//
// To read the code, go on with session.go, request.go, then handlers.go.
package httpapi
