//go:build unix

package child

import (
	"syscall"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/child/guard"
)

// How often the time that is left is asked for: several times in what was left, at least once
// a second, so that the guard knows of a renewal long before it would act.
const (
	looks     = 8
	leastLook = 10 * time.Millisecond
	mostLook  = time.Second
)

// spare is how much later the guard asks the group to end than this process does, so that the
// group is asked once. It is no more than half of the time from TERM to KILL.
const spare = 500 * time.Millisecond

// deadline is until when a command may run. All times are those of guard.Now. In order:
//
//	   ask: TERM       the guard's TERM, if       until: KILL, by this process or
//	                   this one has sent none     the guard, whichever runs
//	----|----------------------|-------------------|--------------------> time
//	    |<---------------- KillAfter ------------->|   the store may give the lock away
//
// Each renewal of the lock moves all of them on.
type deadline struct {
	guard  *guard.Guard
	until  time.Duration    // when the command must have ended, as far as is known
	limit  time.Duration    // when it is asked to end all the same
	acts   time.Duration    // when the guard acts by itself, as it was told
	next   <-chan time.Time // when to look again; nil once the group was killed
	ending bool             // the group was asked to end, or killed
	killAt time.Duration    // then: when it is killed
}

// begin sets the clock before the command exists.
func (j *job) begin() {
	j.until = guard.Now()
	j.limit = guard.Never
	if j.Limit > 0 && j.Limit < guard.Never-j.until {
		j.limit = j.until + j.Limit
	}
	j.learn()
	j.instruct()
	j.wind()
}

// learn asks how much time is left. The clock is read first, so a pause in between makes
// the time shorter.
func (j *job) learn() {
	now := guard.Now()
	if left := j.Left(); left > 0 {
		j.until = now + left
	}
}

// instruct tells the guard what is known.
func (j *job) instruct() {
	if j.ending {
		j.acts = j.killAt
		j.guard.Until(guard.Never, j.killAt)
		return
	}
	ask := guard.Never
	if j.KillAfter > 0 {
		ask = max(j.until-j.KillAfter, 0) + min(spare, j.KillAfter/2)
	}
	j.acts = min(ask, j.until)
	j.guard.Until(ask, j.until)
}

// wind sets when to look again.
func (j *job) wind() {
	now := guard.Now()
	due := min(j.until-j.KillAfter, j.limit)
	if j.ending {
		due = j.killAt
	}
	often := min(max((j.until-now)/looks, leastLook), mostLook)
	j.next = time.After(min(max(due-now, 0), often)) // no longer: timers stand still while the machine sleeps
}

// watch does what the time has come for.
func (j *job) watch() {
	j.learn()
	now := guard.Now()
	switch {
	case j.giveUp != nil: // it was killed
		return
	case j.ending && now >= j.killAt:
		j.makeEnd()
		return
	case j.ending:
	case now >= j.until-j.KillAfter:
		j.stop("no renewal has reached the store in time")
	case now >= j.limit:
		j.stop("the max hold has passed")
	default:
		j.instruct()
	}
	j.wind()
}

// stop asks the group to end, once, or kills it if there is no time for that.
func (j *job) stop(why string) {
	if j.ending {
		return
	}
	j.learn()
	now := guard.Now()
	asked := now >= j.acts // by the guard
	j.ending, j.result.Lost, j.pending, j.notice = true, true, nil, nil
	j.killAt = min(now+j.KillAfter, j.until)
	j.instruct() // first: the guard is not to ask as well
	switch {
	case now >= j.killAt:
		j.makeEnd()
	case !asked:
		j.signal(syscall.SIGTERM)
		fallthrough
	default:
		j.signal(syscall.SIGCONT) // a stopped process takes TERM when it is continued, before anything else
		j.wind()
	}
	j.Ending(why, max(j.killAt-now, 0))
}

// makeEnd kills the group.
func (j *job) makeEnd() {
	j.next, j.giveUp = nil, time.After(hopeless)
	j.signal(syscall.SIGKILL)
}
