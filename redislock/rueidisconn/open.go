package rueidisconn

import (
	"errors"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/redislock"
)

// Open is redislock.New with the Conn of Dial. Its URL may have two more query parameters, which
// belong to the lock table and not to the connection:
//
//	replicas=2               redislock.Config.WaitReplicas
//	replica-timeout=500ms    redislock.Config.WaitTimeout
//
// Errors: those of Dial. A value that does not fit the TTL is reported when a session is opened.
func Open(rawURL string) (*redislock.Backend, error) { return OpenVia(rawURL, nil) }

// OpenVia is Open with every connection made by dial, as in DialVia.
func OpenVia(rawURL string, dial Dialer) (*redislock.Backend, error) {
	rest, cfg, err := config(rawURL)
	if err != nil {
		return nil, invalid(rawURL, err)
	}
	conn, err := DialVia(rest, dial)
	if err != nil {
		return nil, err
	}
	return redislock.New(conn, cfg), nil
}

// config cuts the parameters that Dial does not know out of a URL. It leaves URLs that cannot be
// parsed to Dial.
func config(raw string) (rest string, cfg *redislock.Config, err error) {
	const replicas, timeout = "replicas", "replica-timeout"
	cfg = new(redislock.Config)
	before, text, _ := strings.Cut(raw, "?")
	query, err := url.ParseQuery(text)
	if err != nil || !query.Has(replicas) && !query.Has(timeout) {
		return raw, cfg, nil
	}
	if len(query[replicas]) > 1 || len(query[timeout]) > 1 {
		return "", nil, errors.New("replicas or replica-timeout is given twice")
	}
	if cfg.WaitReplicas, err = strconv.Atoi(query.Get(replicas)); err != nil || cfg.WaitReplicas < 1 ||
		cfg.WaitReplicas > 32 {
		return "", nil, errors.New("replicas is not a number from 1 to 32")
	}
	if query.Has(timeout) {
		cfg.WaitTimeout, err = time.ParseDuration(query.Get(timeout))
		if err != nil || cfg.WaitTimeout < time.Millisecond {
			return "", nil, errors.New("replica-timeout is not a time like 500ms, from 1ms to a third of the TTL")
		}
	}
	query.Del(replicas)
	query.Del(timeout)
	if len(query) == 0 {
		return before, cfg, nil
	}
	return before + "?" + query.Encode(), cfg, nil
}
