package rueidisconn

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
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
//	mutex=fair               redisson.Config.Fair; only with dialect=redisson
//	semaphore=plain          redisson.Config.PlainSemaphores; only with dialect=redisson
//
// Errors: those of Dial. A value that does not fit the TTL is reported when a session is opened.
func Open(rawURL string) (*redislock.Backend, error) { return OpenVia(rawURL, nil) }

// OpenVia is Open with every connection made by dial, as in DialContext.
func OpenVia(rawURL string, dial Dialer) (*redislock.Backend, error) {
	rest, t, err := config(rawURL)
	set, first := parsePart(rest, rawURL, t.parameters())
	switch {
	case first != nil: // a parameter that is misspelled may be why another one is refused
		return nil, first
	case err != nil:
		return nil, invalid(rawURL, err)
	}
	conn, err := dialWith(context.Background(), set, dial)
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

// The parameters of the lock table.
const (
	replicas  = "replicas"
	timeout   = "replica-timeout"
	dialect   = "dialect"
	mutex     = "mutex"
	semaphore = "semaphore"
)

// parameters returns which of them may stand beside those that the URL has.
func (t *table) parameters() []string {
	all := []string{replicas, timeout, dialect}
	if t.redisson {
		all = append(all, mutex, semaphore)
	}
	return all
}

// config cuts the parameters that Dial does not know out of a URL. It leaves URLs that cannot be
// parsed to Dial.
func config(raw string) (rest string, t table, err error) {
	before, text, _ := strings.Cut(raw, "?")
	query, err := url.ParseQuery(text)
	if err != nil {
		return raw, t, nil
	}
	err = t.read(query)
	had := len(query)
	for _, key := range []string{replicas, timeout, dialect, mutex, semaphore} {
		query.Del(key)
	}
	switch len(query) {
	case had:
		return raw, t, err
	case 0:
		return before, t, err
	}
	return before + "?" + query.Encode(), t, err
}

// read reads the parameters of the lock table.
func (t *table) read(query url.Values) (err error) {
	for _, key := range []string{replicas, timeout, dialect, mutex, semaphore} {
		if len(query[key]) > 1 {
			return fmt.Errorf("the parameter %q is given twice", key)
		}
	}
	for _, p := range []struct {
		key    string
		values map[string]*bool
	}{
		{dialect, map[string]*bool{"redisson": &t.redisson}},
		{mutex, map[string]*bool{"fenced": &t.Fenced, "fair": &t.Fair}},
		{semaphore, map[string]*bool{"plain": &t.PlainSemaphores}},
	} {
		if flag := p.values[query.Get(p.key)]; flag != nil {
			*flag = true
		} else if query.Has(p.key) {
			allowed := strings.Join(slices.Sorted(maps.Keys(p.values)), " or ")
			return fmt.Errorf("the parameter %q must be %s", p.key, allowed)
		}
	}
	for _, key := range []string{mutex, semaphore} {
		if !t.redisson && query.Has(key) {
			return fmt.Errorf("the parameter %q needs dialect=redisson", key)
		}
	}
	if query.Has(replicas) || query.Has(timeout) {
		if t.WaitReplicas, err = strconv.Atoi(query.Get(replicas)); err != nil || t.WaitReplicas < 1 || t.WaitReplicas > 32 {
			return errors.New("replicas is not a number from 1 to 32")
		}
	}
	if query.Has(timeout) {
		t.WaitTimeout, err = time.ParseDuration(query.Get(timeout))
		if err != nil || t.WaitTimeout < time.Millisecond {
			return errors.New("replica-timeout is not a time like 500ms, from 1ms to a third of the TTL")
		}
	}
	return nil
}
