package sqlite

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(helperEnv); path != "" {
		os.Exit(helperMain(path))
	}
	goleak.VerifyTestMain(m)
}
