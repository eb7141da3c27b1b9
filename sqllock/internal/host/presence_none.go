//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package host

import "os"

// Presence does nothing here: no process is ever considered dead.
type Presence struct{}

// Announce does nothing.
func Announce(string) (*Presence, error) { return &Presence{}, nil }

// Duplicate returns nil.
func (p *Presence) Duplicate() (*os.File, error) { return nil, nil }

// Inode returns 0.
func (p *Presence) Inode() uint64 { return 0 }

// Intact always returns true.
func (p *Presence) Intact() bool { return true }

// Close does nothing.
func (p *Presence) Close() error { return nil }

// Drop does nothing.
func (p *Presence) Drop() error { return nil }

// Probe returns Unknown.
func Probe(string, uint64) (Life, *DeadFile) { return Unknown, nil }

// DeadFile is not used here.
type DeadFile struct{}

// Close does nothing.
func (g *DeadFile) Close(bool) {}
