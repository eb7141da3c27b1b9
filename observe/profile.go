package observe

import (
	"runtime/pprof"
	"sync"

	"github.com/holdfast-lock/holdfast"
)

// The names of the profiles that Profiles makes, as runtime/pprof and net/http/pprof have them.
const (
	ProfileHeld    = "holdfast.held"
	ProfileWaiting = "holdfast.waiting"
)

// Profiles returns the profiles of this process for Config.Profiles: all clients that get them share
// them. A program that serves net/http/pprof shows who took, and has not released, which locks:
//
//	go tool pprof http://localhost:6060/debug/pprof/holdfast.held
//	curl 'http://localhost:6060/debug/pprof/holdfast.waiting?debug=1'
//
// It is safe for concurrent use.
func Profiles() holdfast.Profiles { return profiles() }

var profiles = sync.OnceValue(func() holdfast.Profiles {
	return holdfast.Profiles{Held: profile(ProfileHeld), Waiting: profile(ProfileWaiting)}
})

// profile returns the profile of that name. The program may have made one.
func profile(name string) *pprof.Profile {
	if p := pprof.Lookup(name); p != nil {
		return p
	}
	return pprof.NewProfile(name)
}
