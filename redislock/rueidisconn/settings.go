package rueidisconn

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-lock/holdfast/internal/storeurl"
)

// The parameters of all URLs; see Dial.
const (
	dialTimeoutParameter = "dial-timeout"
	readTimeoutParameter = "read-timeout"
	poolSizeParameter    = "pool-size"
	sentinelPasswordFile = "sentinelpassword-file"
)

// Limits of the parameters. A renewal must not queue behind one request that waits for replicas, so
// a pool has two connections at least.
const (
	leastTimeout, mostTimeout = 100 * time.Millisecond, time.Minute
	leastPool, mostPool       = 2, 1024
)

// named are the parameters as other clients spell them.
var named = map[string]string{
	"dial_timeout": dialTimeoutParameter, "connect_timeout": dialTimeoutParameter, "dialtimeout": dialTimeoutParameter,
	"read_timeout": readTimeoutParameter, "readtimeout": readTimeoutParameter, "write_timeout": readTimeoutParameter,
	"timeout": readTimeoutParameter, "pool_size": poolSizeParameter, "poolsize": poolSizeParameter,
	"password_file": storeurl.PasswordFile, "passwordfile": storeurl.PasswordFile, "passfile": storeurl.PasswordFile,
}

// meant returns a question with the parameter of all that another client calls k, or that is most like k,
// or "".
func meant(k string, all []string) string {
	if ours := named[k]; ours != "" {
		return fmt.Sprintf(" (did you mean %s?)", ours)
	}
	return storeurl.Meant(k, all)
}

// tuning reads the limits of the client.
func (p *parts) tuning(s *settings) (err error) {
	p.known = append(p.known, storeurl.PasswordFile, dialTimeoutParameter, readTimeoutParameter, poolSizeParameter)
	if s.Dialer.Timeout, err = p.timeout(dialTimeoutParameter, dialTimeout); err != nil {
		return err
	}
	s.Sentinel.Dialer.Timeout = s.Dialer.Timeout
	if s.ConnWriteTimeout, err = p.timeout(readTimeoutParameter, ioTimeout); err != nil {
		return err
	}
	if p.query.Has(poolSizeParameter) {
		s.pool, err = strconv.Atoi(p.query.Get(poolSizeParameter))
		if err != nil || s.pool < leastPool || s.pool > mostPool {
			return fmt.Errorf("%s is not a number from %d to %d", poolSizeParameter, leastPool, mostPool)
		}
	}
	return nil
}

// timeout reads a parameter that is a time.
func (p *parts) timeout(key string, otherwise time.Duration) (time.Duration, error) {
	if !p.query.Has(key) {
		return otherwise, nil
	}
	d, err := time.ParseDuration(p.query.Get(key))
	if err != nil || d < leastTimeout || d > mostTimeout {
		return 0, fmt.Errorf("%s is not a time with its unit, such as 2s, from %v to %v", key, leastTimeout, mostTimeout)
	}
	return d, nil
}

// passwordFile makes each new connection present the password that its file has then. Only with
// sentinels is the file read once: the client would present what it has at that time to the
// sentinels, too.
func (p *parts) passwordFile(opt *rueidis.ClientOption) error {
	if !p.query.Has(storeurl.PasswordFile) {
		return nil
	}
	if opt.Password != "" {
		return errors.New("it has a password and a password-file: only one of them is allowed")
	}
	file, user := p.query.Get(storeurl.PasswordFile), opt.Username
	password, err := storeurl.ReadPassword(file)
	if err != nil {
		return err
	}
	if opt.Sentinel.MasterSet != "" {
		opt.Password = password
		return nil
	}
	opt.AuthCredentialsFn = func(rueidis.AuthCredentialsContext) (rueidis.AuthCredentials, error) {
		password, err := storeurl.ReadPassword(file)
		return rueidis.AuthCredentials{Username: user, Password: password}, err
	}
	return nil
}
