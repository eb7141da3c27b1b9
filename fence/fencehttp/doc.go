// Package fencehttp lets a resource behind HTTP refuse requests under an old fencing token.
//
// The holder's client sends the token of its lease in a header, by [Transport]. The resource's
// server refuses requests whose token is smaller than the largest that it has seen, and remembers
// that. There are two guards, which protect different things:
//
//   - [Guard] checks before the handler runs. It keeps out requests that arrive after a newer
//     holder's. A request that is already in its handler is not stopped: the check and the effect
//     are two steps, and a newer holder may come in between. So a handler that is paused after the
//     check can still write late.
//   - [TxGuard] begins an SQL transaction, and checks in it. The handler gets that transaction by
//     [Tx]. What it writes there is committed together with the token, or not at all. So no late
//     write is possible. Effects outside the transaction have only Guard's protection.
//
// Every request that uses the resource must pass the guard, also one that only reads for a later write.
package fencehttp
