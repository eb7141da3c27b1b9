package quorum

// agree makes the clocks of simulated servers count.
func (b *Backend) agree() {
	b.clocks = newClocks(b)
	for i := range b.clocks.views {
		b.clocks.views[i].trust = sound
	}
}
