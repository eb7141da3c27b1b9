//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package host

// Presence is a sign of life that this system cannot give: nobody is taken for dead.
type Presence struct{}

// Announce does nothing.
func Announce(string) (*Presence, error) { return &Presence{}, nil }

// Inode is 0.
func (p *Presence) Inode() uint64 { return 0 }

// Intact is true.
func (p *Presence) Intact() bool { return true }

// Close does nothing.
func (p *Presence) Close() error { return nil }

// Drop does nothing.
func (p *Presence) Drop() error { return nil }

// Probe is Unknown.
func Probe(string, uint64) (Life, *Grave) { return Unknown, nil }

// Grave is never made.
type Grave struct{}

// Close does nothing.
func (g *Grave) Close(bool) {}
