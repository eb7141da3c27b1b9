// Package console shows the locks of a store in a browser: what is held and who waits, one lock and
// why it is stuck, who waits for whom with the deadlocks, what has changed, elections, and the
// doctor's findings. [Handler] is for a program's own mux; "holdfast serve" has it behind a
// listener with authentication.
//
// One reading of the store, every two seconds while somebody looks, feeds all viewers. The pages
// change nothing, unless Options.MayChange allows it to the caller. They work without script; the
// script only loads a page again when there is a new reading. docs/console.md explains the pages.
package console
