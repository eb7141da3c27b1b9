package history

// mark notes which clients the Run events are about.
func (b *builder) mark() {
	b.observed, b.unordered = make([]bool, len(b.clients)), make([]bool, len(b.clients))
	for _, r := range b.marks {
		e := b.at(r)
		which := b.observed
		if e.Target == Unordered {
			which = b.unordered
		}
		for _, c := range b.matching(e.Client) {
			which[c] = true
		}
		for c := range which {
			which[c] = which[c] || e.Client == ""
		}
	}
}
