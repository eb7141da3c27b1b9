package open

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/storeurl"
	"github.com/holdfast-lock/holdfast/sqllock/postgres"
)

const postgresPort = "5432"

// postgresAllowed has no @ after a ://, or Scrub would mask the text between them.
const postgresAllowed = "allowed are postgres://HOST[:PORT][,HOST...][/DATABASE] (postgresql:// is the same), USER[:PASSWORD]@ before the hosts, password-file=PATH, the parameters of libpq " +
	"and of the server such as sslmode, sslrootcert, connect_timeout, search_path, and listen=URL, percent-encoded: a direct connection past a pooler"

// invalidPostgres is a refusal.
func invalidPostgres(format string, args ...any) error {
	return fmt.Errorf("%w postgres URL: %s; %s", driver.ErrInvalid, fmt.Sprintf(format, args...), postgresAllowed)
}

// listenParameter has another URL, which may have secrets too.
const listenParameter = "listen"

// postgresPool returns the pool of a URL. It does not connect yet.
func postgresPool(rawURL string, dial Dialer) (*sqlPool, error) {
	cfg, own, err := postgresConfig(rawURL, invalidPostgres)
	if err != nil {
		return nil, err
	}
	p := &sqlPool{dialect: postgres.Dialect(), place: postgresPlace(cfg), missing: postgresMissing}
	if own.listen != "" {
		invalid := func(format string, args ...any) error { return invalidPostgres("listen: "+format, args...) }
		direct, further, err := postgresConfig(own.listen, invalid)
		if err == nil && further.listen != "" {
			err = invalid("it must not have a parameter listen itself")
		}
		if err != nil {
			return nil, err
		}
		if direct.Password == "" { // mostly the same server, past a pooler
			direct.Password, further.password = cfg.Password, own.password
		}
		dial.postgres(direct)
		p.listen = stdlib.OpenDB(*direct, further.password.postgres())
	}
	dial.postgres(cfg)
	p.db = stdlib.OpenDB(*cfg, own.password.postgres())
	return p, nil
}

// ofHoldfast are the parameters of a URL that pgx does not know.
type ofHoldfast struct {
	listen   string
	password passwordFile
}

// postgres makes each new connection present the password of the file.
func (f passwordFile) postgres() stdlib.OptionOpenDB {
	return stdlib.OptionBeforeConnect(func(_ context.Context, c *pgx.ConnConfig) error { return f.read(&c.Password) })
}

// postgres makes cfg connect with d. d gets the names of the servers, since only d may be able to
// look them up.
func (d Dialer) postgres(cfg *pgx.ConnConfig) {
	if d == nil {
		return
	}
	cfg.DialFunc = pgconn.DialFunc(d)
	cfg.LookupFunc = func(_ context.Context, host string) ([]string, error) { return []string{host}, nil }
}

func postgresMissing(err error) error {
	var said *pgconn.PgError
	if errors.As(err, &said) && (said.Code == "3D000" || said.Code == "3F000") {
		return said
	}
	return nil
}

// postgresConfig parses a URL with pgx, which also reads the environment and files of libpq, and
// adds the settings of this program.
func postgresConfig(rawURL string, invalid refusal) (cfg *pgx.ConnConfig, own ofHoldfast, err error) {
	u, query, err := serverURL(rawURL, invalid, "postgres", "postgresql")
	if err != nil {
		return nil, own, err
	}
	for i, h := range strings.Split(u.Host, ",") {
		if h == "" || strings.HasPrefix(strings.ToUpper(h), "%2F") { // the default, or the folder of a socket
			continue
		}
		if _, err := storeurl.HostPort(h, postgresPort); err != nil {
			return nil, own, invalid("server %d: %v", i+1, err)
		}
	}
	for k, v := range query {
		if len(v) != 1 || v[0] == "" {
			return nil, own, invalid("the parameter %q is empty or given twice", k)
		}
	}
	// The other parameters are not encoded again: for libpq a plus sign is not a space.
	rest := slices.DeleteFunc(pairs(u.RawQuery), func(p pair) bool {
		if p.key == listenParameter {
			own.listen = p.value
		}
		return p.key == listenParameter || p.key == storeurl.PasswordFile
	})
	given, _ := u.User.Password()
	if given == "" {
		given = query.Get("password")
	}
	file, password, err := passwordFileOf(query, given, invalid)
	if err != nil {
		return nil, own, err
	}
	own.password = file
	if !query.Has("connect_timeout") && os.Getenv("PGCONNECT_TIMEOUT") == "" {
		rest = append(rest, pair{raw: fmt.Sprintf("connect_timeout=%d", dialLimit/time.Second)})
	}
	address := u.Host + u.EscapedPath() + "?" + joinPairs(rest)
	if u.User != nil {
		address = u.User.String() + "@" + address
	}
	if cfg, err = pgx.ParseConfig("postgres://" + address); err != nil {
		return nil, own, invalid("%s", withoutURL(err))
	}
	if file.path != "" {
		cfg.Password = password
	}
	if cfg.RuntimeParams["application_name"] == "" {
		cfg.RuntimeParams["application_name"] = "holdfast"
	}
	// Prepared statements fail behind some poolers, and do not pay off in a process that ends soon.
	cfg.DefaultQueryExecMode = pgx.QueryExecModeExec
	return cfg, own, nil
}

// withoutURL returns the text of an error of pgx after the URL that it quotes.
func withoutURL(err error) string {
	text := err.Error()
	if i := strings.LastIndex(text, "`: "); i >= 0 {
		text = text[i+len("`: "):]
	}
	return text
}

// postgresPlace names the tables: the servers, sorted, the database and the schema.
func postgresPlace(cfg *pgx.ConnConfig) string {
	hosts := []string{postgresHost(cfg.Host, cfg.Port)}
	for _, f := range cfg.Fallbacks { // also the same servers with and without TLS
		hosts = append(hosts, postgresHost(f.Host, f.Port))
	}
	slices.Sort(hosts)
	place := "postgres:" + strings.Join(slices.Compact(hosts), ",") + "/" + cmp.Or(cfg.Database, cfg.User)
	if path := cfg.RuntimeParams["search_path"]; path != "" {
		place += "#" + path
	}
	return place
}

func postgresHost(host string, port uint16) string {
	network, addr := pgconn.NetworkAddress(host, port)
	if network == "tcp" {
		addr = strings.ToLower(addr)
	}
	return addr
}
