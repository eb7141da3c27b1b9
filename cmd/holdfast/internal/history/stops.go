package history

// stop: from here on the grants of these clients are claimed only by Held.
func (b *builder) stop(e *Event) {
	for _, c := range b.matching(e.Target) {
		for _, a := range b.open[c] {
			if h := &b.attempts[a]; h.granted() {
				m := h.change()
				m.stopped = min(m.stopped, e.T)
			}
		}
	}
}

// isStopped reports whether the client is being stopped: it may run on for a moment after the fault
// began.
func (b *builder) isStopped(client int32) bool {
	for _, target := range b.stopTargets {
		if b.clients[client] == target || b.process[client] == target {
			return true
		}
	}
	return false
}
