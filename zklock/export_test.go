package zklock

import "github.com/holdfast-lock/holdfast/driver"

// Credentials are what allows to join, and to end, the ZooKeeper session of a driver's session.
func Credentials(s driver.Session) (id int64, password []byte) {
	l := s.(*session).l
	return l.ID(), l.Password()
}

// Sealed reports whether it is known if the servers enforce ACLs, and if so whether they do.
func Sealed(s driver.Session) (known, holds bool) {
	state := s.(*session).l.seal.state.Load()
	return state == sealFails || state == sealHolds, state == sealHolds
}
