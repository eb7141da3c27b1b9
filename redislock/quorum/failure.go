package quorum

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/redislock"
)

// verdict returns the error for so many failed servers that there is no majority. Others may not have
// answered yet.
func (b *Backend) verdict(errs []error) error { return b.judge(errs, "at least ") }

// verdictOfAll is verdict after all servers were asked.
func (b *Backend) verdictOfAll(errs []error) error { return b.judge(errs, "") }

func (b *Backend) judge(errs []error, atLeast string) error {
	var kept []error
	quarantined, refused, denied, damaged, closed, uncertain := 0, 0, 0, 0, 0, false
	for _, err := range errs {
		var newborn *redislock.Newborn
		switch {
		case err == nil:
			continue
		case errors.As(err, &newborn):
			quarantined++
		case errors.Is(err, driver.ErrRefused):
			refused++
			if errors.Is(err, fs.ErrPermission) {
				denied++
			}
		case errors.Is(err, driver.ErrDamaged):
			damaged++
		case errors.Is(err, driver.ErrClosed):
			closed++
		case errors.Is(err, driver.ErrUncertain):
			uncertain = true
		}
		kept = append(kept, err)
	}
	what, most := driver.ErrUnavailable, len(b.servers)-b.need()
	switch {
	case closed > 0:
		return driver.ErrClosed
	// Without the damaged records, the servers that answered would be a majority.
	case damaged > most || damaged > 0 && !uncertain && len(kept) > most && len(kept)-damaged <= most:
		what = driver.ErrDamaged
	case denied > most:
		what = driver.Denied(driver.ErrRefused)
	case refused+damaged > most:
		what = driver.ErrRefused
	case uncertain:
		what = driver.ErrUncertain
	}
	text := ""
	switch {
	case len(kept) == len(b.servers):
		text = fmt.Sprintf("all %d servers failed", len(kept))
	case len(kept) > most:
		text = fmt.Sprintf("no majority: %s%d of %d servers failed", atLeast, len(kept), len(b.servers))
	default:
		text = fmt.Sprintf("%d of %d servers failed", len(kept), len(b.servers))
	}
	if quarantined > most && !b.used.Load() {
		kept = append(kept, errNew)
	}
	return &failure{what, text, kept}
}

// atEach returns the error of a request that every server must do; nil if all have.
func (b *Backend) atEach(errs []error) error {
	var failed []error
	what := driver.ErrUnavailable
	for _, err := range errs {
		if err != nil {
			failed = append(failed, err)
		}
		switch {
		case errors.Is(err, driver.ErrClosed):
			return driver.ErrClosed
		case errors.Is(err, driver.ErrRefused):
			what = driver.ErrRefused
		case errors.Is(err, driver.ErrUncertain) && what != driver.ErrRefused:
			what = driver.ErrUncertain
		}
	}
	if failed == nil {
		return nil
	}
	return &failure{what, fmt.Sprintf("%d of %d servers failed", len(failed), len(b.servers)), failed}
}

// errNew stands beside the errors of servers in quarantine. They may belong to a new quorum, or to one
// that was used and whose servers have all restarted: its servers cannot tell.
var errNew = errors.New("only a quorum in which nobody ever had a lock may be declared new: holdfast init, or quorum.Backend.Declare")

// failure is an error whose meaning the quorum decides, not its servers.
type failure struct {
	what  error
	text  string
	parts []error
}

// Error names each server once, and a fact about several servers once.
func (e *failure) Error() string {
	var facts []string
	servers := map[string][]string{}
	add := func(fact, server string) {
		if _, known := servers[fact]; !known {
			facts, servers[fact] = append(facts, fact), nil
		}
		if server != "" && !slices.Contains(servers[fact], server) {
			servers[fact] = append(servers[fact], server)
		}
	}
	last := ""
	for _, err := range e.parts {
		var one *serverError
		switch {
		case err == errNew:
			last = "; " + err.Error()
		case errors.As(err, &one):
			fact := strings.Replace(err.Error(), one.server+": ", "", 1) // it may have words around it
			add(strings.TrimPrefix(fact, e.what.Error()+": "), one.server)
		default:
			add(strings.TrimPrefix(err.Error(), e.what.Error()+": "), "")
		}
	}
	parts := make([]string, len(facts))
	for i, fact := range facts {
		parts[i] = fact
		if of := servers[fact]; len(of) > 0 {
			slices.Sort(of)
			parts[i] = listed(of) + ": " + fact
		}
	}
	slices.Sort(parts)
	return fmt.Sprintf("%v: %s: %s%s", e.what, e.text, strings.Join(parts, "; "), last)
}

// Unwrap returns what the failure means. The servers' errors are only in the text: their meaning is
// not that of the quorum's error.
func (e *failure) Unwrap() error { return e.what }

// serverError is the error of one server.
type serverError struct {
	server string
	err    error
}

// ofServer returns err as an error of a server. If err is one already, ofServer returns it: its text has the name.
func ofServer(server string, err error) error {
	var one *serverError
	if err == nil || errors.As(err, &one) && one.server == server {
		return err
	}
	return &serverError{server, err}
}

func (e *serverError) Error() string { return e.server + ": " + e.fact() }

func (e *serverError) Unwrap() error { return e.err }

// fact is the text of the error without the server's name, so that equal faults have equal texts.
func (e *serverError) fact() string {
	var newborn *redislock.Newborn
	if errors.As(e.err, &newborn) && newborn.Left > time.Second { // they have restarted at almost the same time
		return (&redislock.Newborn{Left: (newborn.Left + time.Second - 1).Truncate(time.Second)}).Error()
	}
	text := strings.TrimPrefix(e.err.Error(), "redis "+e.server+": ") // a Conn names its server, too
	if rest, ok := strings.CutPrefix(text, driver.ErrUnavailable.Error()+" after "); ok {
		limit, why, _ := strings.Cut(rest, ": ")
		text = fmt.Sprintf("%v: %s (%s)", driver.ErrUnavailable, why, limit)
	}
	text = strings.ReplaceAll(text, "dial tcp "+e.server+": ", "")
	return strings.ReplaceAll(text, "connect: connection refused", "connection refused")
}

// listed joins names as a sentence does.
func listed(names []string) string {
	if n := len(names) - 1; n > 0 {
		return strings.Join(names[:n], ", ") + " and " + names[n]
	}
	return strings.Join(names, "")
}
