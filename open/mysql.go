package open

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	godriver "github.com/go-sql-driver/mysql"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/storeurl"
	"github.com/holdfast-lock/holdfast/sqllock/mysql"
)

const mySQLPort = "3306"

// dialLimit is how long connecting may take if the URL sets no limit.
const dialLimit = 5 * time.Second

// mySQLAllowed has no @ after a ://, or Scrub would mask the text between them.
const mySQLAllowed = "allowed are mysql://HOST[:PORT]/DATABASE or mysql:///DATABASE?socket=PATH (mariadb:// is the same), USER[:PASSWORD]@ before the host, " +
	"and the parameters password-file=PATH, tls=true, skip-verify or off, with tls=true also ca, cert, key, servername, and timeout=DURATION, readTimeout=DURATION"

// invalidMySQL is a refusal.
func invalidMySQL(format string, args ...any) error {
	return fmt.Errorf("%w mysql URL: %s; %s", driver.ErrInvalid, fmt.Sprintf(format, args...), mySQLAllowed)
}

// mySQLPool returns the pool of a URL. It does not connect yet.
func mySQLPool(rawURL string, dial Dialer) (*sqlPool, error) {
	cfg, err := mySQLConfig(rawURL)
	if err != nil {
		return nil, err
	}
	cfg.DialFunc = dial
	place := "mysql:" + cfg.Addr + "/" + cfg.DBName
	c, err := godriver.NewConnector(cfg)
	if err != nil {
		return nil, invalidMySQL("%v", err)
	}
	return &sqlPool{dialect: mysql.Dialect(), db: sql.OpenDB(c), place: place, missing: mySQLMissing}, nil
}

func mySQLMissing(err error) error {
	var said *godriver.MySQLError
	if errors.As(err, &said) && said.Number == 1049 {
		return said
	}
	return nil
}

func mySQLConfig(rawURL string) (*godriver.Config, error) {
	u, query, err := serverURL(rawURL, invalidMySQL, "mysql", "mariadb")
	if err != nil {
		return nil, err
	}
	cfg := godriver.NewConfig()
	cfg.Timeout = dialLimit
	cfg.Logger = &godriver.NopLogger{} // it returns errors that matter as well
	cfg.ConnectionAttributes = "program_name:holdfast"
	if u.User != nil {
		cfg.User = u.User.Username()
		cfg.Passwd, _ = u.User.Password()
	}
	file, password, err := passwordFileOf(query, cfg.Passwd, invalidMySQL)
	if err != nil {
		return nil, err
	}
	cfg.Passwd = password
	again := func(_ context.Context, c *godriver.Config) error { return file.read(&c.Passwd) }
	err = cfg.Apply(godriver.BeforeConnect(again))
	if err != nil {
		return nil, invalidMySQL("%v", err)
	}
	if cfg.User == "" {
		return nil, invalidMySQL("it names no user")
	}
	if err := mySQLParameters(cfg, query); err != nil {
		return nil, err
	}
	if err := mySQLAddress(cfg, u, query.Get("socket")); err != nil {
		return nil, err
	}
	switch cfg.DBName = strings.TrimPrefix(u.Path, "/"); {
	case cfg.DBName == "":
		return nil, invalidMySQL("it names no database")
	case strings.Contains(cfg.DBName, "/"):
		return nil, invalidMySQL("the name of the database has a slash")
	}
	return cfg, nil
}

func mySQLAddress(cfg *godriver.Config, u *url.URL, socket string) error {
	if socket == "" {
		if strings.Contains(u.Host, ",") {
			return invalidMySQL("it names several servers: only one is allowed")
		}
		addr, err := storeurl.HostPort(u.Host, mySQLPort)
		if err != nil {
			return invalidMySQL("%v", err)
		}
		cfg.Net, cfg.Addr = "tcp", addr
		return nil
	}
	switch {
	case u.Host != "" && !strings.EqualFold(u.Host, "localhost"):
		return invalidMySQL("it names a host and a socket: only one of them is allowed")
	case !strings.HasPrefix(socket, "/"):
		return invalidMySQL("socket=%s: it must be an absolute path", socket)
	}
	cfg.Net, cfg.Addr = "unix", socket
	return nil
}

// mySQLParameters reads the query, and refuses unknown parameters.
func mySQLParameters(cfg *godriver.Config, query url.Values) error {
	known := append([]string{"socket", "tls", "timeout", "readTimeout", storeurl.PasswordFile}, storeurl.TLSParameters...)
	err := onlyKnown(query, invalidMySQL, known...)
	if err != nil {
		return err
	}
	switch t := query.Get("tls"); t {
	case "", "off":
	case "true", "skip-verify":
		if cfg.TLS, err = storeurl.TLSConfig(query); err != nil {
			return invalidMySQL("%v", err)
		}
		cfg.TLS.InsecureSkipVerify = t == "skip-verify"
	default:
		return invalidMySQL("tls=%s: it must be true, skip-verify or off", t)
	}
	for _, k := range storeurl.TLSParameters {
		switch {
		case query.Has(k) && cfg.TLS == nil:
			return invalidMySQL("the parameter %s is for tls=true", k)
		case query.Has(k) && cfg.TLS.InsecureSkipVerify && (k == "ca" || k == "servername"):
			return invalidMySQL("tls=skip-verify does not look at %s", k)
		}
	}
	for k, to := range map[string]*time.Duration{"timeout": &cfg.Timeout, "readTimeout": &cfg.ReadTimeout} {
		s := query.Get(k)
		if s == "" {
			continue
		}
		// A waiter sleeps in a statement for a second at a time.
		least := map[string]time.Duration{"timeout": 100 * time.Millisecond, "readTimeout": 3 * time.Second}[k]
		d, err := time.ParseDuration(s)
		if err != nil || d < least || d > time.Hour {
			return invalidMySQL("%s=%s: it must be a time with its unit, such as 5s, from %v to 1h", k, s, least)
		}
		*to = d
	}
	return nil
}
