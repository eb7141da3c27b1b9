package rueidisconn

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/redislock"
	"github.com/holdfast-lock/holdfast/redislock/redisson"
)

// Open is redislock.New with the Conn of Dial. Its URL may have more query parameters, which belong
// to the lock table and not to the connection:
//
//	replicas=2               redislock.Config.WaitReplicas
//	replica-timeout=500ms    redislock.Config.WaitTimeout
//	dialect=redisson         redisson.New: locks that Java's Redisson shares
//	mutex=fenced             redisson.Config.Fenced; only with dialect=redisson
//	semaphore=plain          redisson.Config.PlainSemaphores; only with dialect=redisson
//
// Errors: those of Dial. A value that does not fit the TTL is reported when a session is opened.
func Open(rawURL string) (*redislock.Backend, error) { return OpenVia(rawURL, nil) }

// OpenVia is Open with every connection made by dial, as in DialVia.
func OpenVia(rawURL string, dial Dialer) (*redislock.Backend, error) {
	rest, t, err := config(rawURL)
	if err != nil {
		return nil, invalid(rawURL, err)
	}
	conn, err := DialVia(rest, dial)
	switch {
	case err != nil:
		return nil, err
	case t.redisson:
		return redisson.New(conn, &t.Config), nil
	}
	return redislock.New(conn, &t.Config.Config), nil
}

// table is what a URL says about the lock table.
type table struct {
	redisson.Config
	redisson bool
}

// config cuts the parameters that Dial does not know out of a URL. It leaves URLs that cannot be
// parsed to Dial.
func config(raw string) (rest string, t table, err error) {
	const replicas, timeout, dialect, mutex, semaphore = "replicas", "replica-timeout", "dialect", "mutex", "semaphore"
	before, text, _ := strings.Cut(raw, "?")
	query, err := url.ParseQuery(text)
	if err != nil {
		return raw, t, nil
	}
	for _, key := range []string{replicas, timeout, dialect, mutex, semaphore} {
		if len(query[key]) > 1 {
			return "", t, fmt.Errorf("%s is given twice", key)
		}
	}
	// only returns an error unless key is missing or has the one value that is allowed.
	only := func(key, value string) (given bool, err error) {
		if given = query.Has(key); given && query.Get(key) != value {
			err = fmt.Errorf("%s is not %s, which is all that is allowed", key, value)
		}
		return given, err
	}
	var errs [3]error
	t.redisson, errs[0] = only(dialect, "redisson")
	t.Fenced, errs[1] = only(mutex, "fenced")
	t.PlainSemaphores, errs[2] = only(semaphore, "plain")
	switch err := errors.Join(errs[:]...); {
	case err != nil:
		return "", t, err
	case !t.redisson && (t.Fenced || t.PlainSemaphores):
		return "", t, errors.New("mutex and semaphore need dialect=redisson")
	}
	if query.Has(replicas) || query.Has(timeout) {
		if t.WaitReplicas, err = strconv.Atoi(query.Get(replicas)); err != nil || t.WaitReplicas < 1 || t.WaitReplicas > 32 {
			return "", t, errors.New("replicas is not a number from 1 to 32")
		}
	}
	if query.Has(timeout) {
		t.WaitTimeout, err = time.ParseDuration(query.Get(timeout))
		if err != nil || t.WaitTimeout < time.Millisecond {
			return "", t, errors.New("replica-timeout is not a time like 500ms, from 1ms to a third of the TTL")
		}
	}
	had := len(query)
	for _, key := range []string{replicas, timeout, dialect, mutex, semaphore} {
		query.Del(key)
	}
	switch len(query) {
	case had:
		return raw, t, nil
	case 0:
		return before, t, nil
	}
	return before + "?" + query.Encode(), t, nil
}
