package console

import (
	"fmt"
	"net/http"
	"time"
)

// keepAlive is how often an open page hears of the connection at least, so that neither side keeps
// one that has failed.
const keepAlive = 15 * time.Second

// events tells a page, as server-sent events, that there is a new reading. The page then loads
// itself again. So what it shows is rendered in one place, and an event carries nothing.
func (h *console) events(w http.ResponseWriter, r *http.Request) {
	v := h.reader.join()
	if v == nil {
		h.fail(w, r, http.StatusServiceUnavailable, "As many pages are open as this console keeps up to date.")
		return
	}
	defer h.reader.leave(v)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // proxies pass it on at once
	c := http.NewResponseController(w)
	send := func(text string) bool {
		_ = c.SetWriteDeadline(time.Now().Add(10 * time.Second))
		_, err := fmt.Fprint(w, text)
		return err == nil && c.Flush() == nil
	}
	tick := time.NewTicker(keepAlive)
	defer tick.Stop()
	for ok := send("retry: 3000\n\n"); ok; {
		select {
		case <-v.fresh:
			ok = send("event: reading\ndata: \n\n")
		case <-tick.C:
			ok = send(":\n\n")
		case <-r.Context().Done():
			return
		}
	}
}
