package postgres_test

import (
	"testing"

	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// lazy are settings of a server that syncs only at commits.
var lazy = []string{"fsync=on", "wal_writer_delay=10s"}

// TestServer runs all tests that leave the server unchanged, on one server.
func TestServer(t *testing.T) {
	t.Parallel()
	server := database(t, lazy...)
	for name, f := range map[string]func(*testing.T, *testenv.PostgresServer){
		"late notification of a held lock":   testNewsOfWhatIsHeldAlready,
		"grant to an abandoned request":      testNewsOfWhatWasGivenUp,
		"a commit that fails":                alone(testCommitThatFails),
		"close while acquire waits":          testCloseWhileAcquireWaits,
		"a row held for longer than a lease": testRowHeldForLongerThanALease,
		"cut off in a transaction":           testCutOffInATransaction,
		"permits at once":                    testPermitsAtOnce,
		"readers and writers":                testReadersAndWriters,
		"isolation":                          testIsolation,
		"hand-over is pushed":                testHandOverIsPushed,
		"queue of processes":                 testLineOfProcesses,
		"odd names":                          testOddNames,
		"no needless notifications":          testNothingToldWhileNobodyWaits,
		"listener ended":                     testListenerThatIsEnded,
		"long silence":                       testLongSilence,
		"rest":                               testRest,
		"rest and wait":                      testRestAndWait,
		"what waits for the disk":            alone(testWhatWaitsForTheDisk),
		"reading writes nothing":             testLookingWritesNothing,
		"init":                               testInit,
		"read-only":                          testReadOnly,
		"exhausted pool":                     testExhaustedPool,
		"other driver":                       testOtherDriver,
		"one statement each":                 testOneStatementEach,
		"no leaked connections":              testNothingKept,
		"pool of pgx":                        testPoolOfPgx,
		"prepared before":                    testPreparedBefore,
		"silent connections":                 testSilentConnections,
		"errors":                             testErrors,
		"clock that is off":                  testClockThatIsOff,
		"clock set back":                     testClockSetBack,
		"close during acquire":               testCloseDuringAcquire,
		"tells only what is written":         testTellsOnlyWhatIsWritten,
		"damage stays alone":                 testDamageStaysAlone,
		"full queue":                         testFullQueue,
		"counts any id":                      testCountsAnyID,
		"batches report for themselves":      testBatchesReportForThemselves,
		"evicted is missing":                 testEvictedIsMissing,
		"rows locked for long":               testRowsLockedForLong,
		"news of a stranger":                 testNewsOfAStranger,
		"token of a stranger":                testTokenOfAStranger,
		"watcher after a slow look":          testWatcherAfterASlowLook,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, server)
		})
	}
}

// alone gives a test its own server: it changes the tables, and statements of all other tests would
// wait for that.
func alone(f func(*testing.T, *testenv.PostgresServer)) func(*testing.T, *testenv.PostgresServer) {
	return func(t *testing.T, _ *testenv.PostgresServer) {
		t.Helper()
		f(t, database(t, lazy...))
	}
}
