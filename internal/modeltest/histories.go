package modeltest

import (
	"flag"
	"sync"

	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// few lets [Check] draw few histories, the same each time, unless the command line says how many or
// the tests run at their full size: then they are drawn anew each time.
var few = sync.OnceFunc(func() {
	if testenv.Deep() {
		return
	}
	given := map[string]bool{}
	flag.Visit(func(f *flag.Flag) { given[f.Name] = true })
	for name, value := range map[string]string{"rapid.checks": "30", "rapid.seed": "3"} {
		if given[name] {
			continue
		}
		if err := flag.Set(name, value); err != nil {
			panic(err) // rapid has these flags
		}
	}
})
