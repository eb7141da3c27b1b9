package open

import (
	"net"
	"net/url"
	"strings"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/redislock"
	"github.com/holdfast-lock/holdfast/redislock/rueidisconn"
)

func openRedis(rawURL string) (*Store, error) {
	conn, err := rueidisconn.Dial(rawURL)
	if err != nil {
		return nil, classify(err, driver.ErrUnavailable)
	}
	return &Store{redislock.New(conn, nil), redisPlace(rawURL)}, nil
}

// redisPlace names the database that a URL which Dial understood leads to.
func redisPlace(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil {
		return ""
	}
	if u.Host == "" {
		return "redis:" + u.Path + "#" + number(u.Query().Get("db"))
	}
	port := u.Port()
	if port == "" {
		port = "6379"
	}
	return "redis:" + strings.ToLower(net.JoinHostPort(u.Hostname(), port)) + "#" + number(strings.Trim(u.Path, "/"))
}

// number is the number of a database without what does not count.
func number(db string) string {
	if db = strings.TrimLeft(db, "0"); db == "" {
		return "0"
	}
	return db
}
