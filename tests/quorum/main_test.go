package quorum_test

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		_ = flag.Set("test.parallel", "3") // they wait for servers, leases and quarantines most of the time
	}
	goleak.VerifyTestMain(m)
}
