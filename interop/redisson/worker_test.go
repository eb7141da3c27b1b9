package redisson

import (
	"os/exec"
	"testing"
)

// workerEnv makes the test binary a worker with holdfast.
const workerEnv = "HOLDFAST_INTEROP_WORKER"

func workerCommand(t testing.TB) *exec.Cmd { t.Fatal("not yet"); return nil }
func serve()                               {}
