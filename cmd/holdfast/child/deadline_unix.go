//go:build unix

package child

import (
	"syscall"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/child/guard"
)

// How often Left is called: several times within the time that is left, and at least once a second,
// so that the guard learns of a renewal long before it would act.
const (
	looks     = 8
	leastLook = 10 * time.Millisecond
	mostLook  = time.Second
)

// spare is how much later the guard sends TERM than this process, so that the group gets it once.
// It is at most half of the time from TERM to KILL.
const spare = 500 * time.Millisecond

// deadline is until when a command may run. All times are those of guard.Now. In order:
//
//	   ask: TERM       TERM by the guard, if      until: KILL, by this process or
//	                   this one has sent none     the guard, whichever runs
//	----|----------------------|-------------------|--------------------> time
//	    |<---------------- KillAfter ------------->|   the store may grant the lock to another
//
// Each renewal of the lock moves all of these times.
type deadline struct {
	guard     *guard.Guard
	until     time.Duration    // when the command must have ended, from the last answer of Left
	limit     time.Duration    // when Limit ends it
	guardActs time.Duration    // when the guard acts by itself, from the last instruct
	next      <-chan time.Time // when to look again; nil once the group was killed
	ending    bool             // the group was asked to end, or killed
	killAt    time.Duration    // when ending: the time of KILL
}

// begin sets the times before the command exists.
func (j *job) begin() {
	j.until = guard.Now()
	j.limit = guard.Never
	if j.Limit > 0 && j.Limit < guard.Never-j.until {
		j.limit = j.until + j.Limit
	}
	j.readLeft()
	j.instruct()
	j.schedule()
}

// readLeft updates until. It reads the clock first, so that a pause in between shortens the time.
func (j *job) readLeft() {
	now := guard.Now()
	if left := j.Left(); left > 0 {
		j.until = now + left
	}
}

// instruct sends the times to the guard.
func (j *job) instruct() {
	// While a killed group does not end, instruct is called every killLimit.
	keep := j.until + j.Margin + 2*killLimit
	if j.ending {
		j.guardActs = j.killAt
		j.guard.Until(guard.Never, j.killAt, keep)
		return
	}
	ask := guard.Never
	if j.KillAfter > 0 {
		ask = max(j.until-j.KillAfter, 0) + min(spare, j.KillAfter/2)
	}
	j.guardActs = min(ask, j.until)
	j.guard.Until(ask, j.until, keep)
}

// schedule sets next.
func (j *job) schedule() {
	now := guard.Now()
	due := min(j.until-j.KillAfter, j.limit)
	if j.ending {
		due = j.killAt
	}
	often := min(max((j.until-now)/looks, leastLook), mostLook)
	j.next = time.After(min(max(due-now, 0), often)) // timers may stop while the machine sleeps
}

// watch does what is due.
func (j *job) watch() {
	j.readLeft()
	now := guard.Now()
	switch {
	case j.giveUp != nil: // the group was killed
		return
	case j.ending && now >= j.killAt:
		j.makeEnd()
		return
	case j.ending:
	case now >= j.until-j.KillAfter:
		j.stop(NotRenewed)
	case now >= j.limit:
		j.stop(TimeOver)
	default:
		j.instruct()
	}
	j.schedule()
}

// stop asks the group to end, once, or kills it if there is no time to ask.
func (j *job) stop(why string) {
	if j.ending {
		return
	}
	if j.dropStop() {
		j.term.lend(j.pid)
	}
	j.readLeft()
	now := guard.Now()
	asked := now >= j.guardActs // by the guard
	j.ending, j.result.Lost, j.pending, j.notice = true, true, nil, nil
	j.killAt = min(now+j.KillAfter, j.until)
	j.instruct() // first, so that the guard does not ask as well
	switch {
	case now >= j.killAt:
		j.makeEnd()
	case !asked:
		j.signal(syscall.SIGTERM)
		fallthrough
	default:
		j.signal(syscall.SIGCONT) // a stopped process first takes TERM when it is continued
		j.schedule()
	}
	j.Ending(why, max(j.killAt-now, 0))
}

// makeEnd kills the group.
func (j *job) makeEnd() {
	j.next, j.giveUp = nil, time.After(killLimit)
	j.signal(syscall.SIGKILL)
}
