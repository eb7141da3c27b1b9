package zklock

import "github.com/holdfast-lock/holdfast/driver"

func newSingle(b *Backend, l *link) driver.Session { return newSession(b, l) }
