// Package bench measures a user's own lock deployment: how long it takes to get and release locks
// of this store from this machine, and to hand them over.
//
// [Run] takes locks under a prefix of its own, and removes them. Beside them it measures what the
// cheapest exchange with the store costs, so that each figure is also a multiple of that. [Result]
// shows the figures as a table, as lines of Go's benchmark format, and as a page.
package bench
