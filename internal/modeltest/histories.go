package modeltest

import (
	"flag"
	"sync"

	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// fewHistories lets [Check] draw few histories, the same each time, unless the command line sets
// their number or the tests run at their full size: then each run draws other histories.
var fewHistories = sync.OnceFunc(func() {
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
