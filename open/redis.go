package open

import (
	"net/url"
	"slices"
	"strings"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/redislock/rueidisconn"
)

// redisSchemes are the schemes that rueidisconn.Dial knows.
var redisSchemes = []string{
	"redis", "rediss", "redis+unix", "unix", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster",
}

func openRedis(rawURL string, dial Dialer) (*Store, error) {
	table, err := rueidisconn.OpenVia(rawURL, dial)
	if err != nil {
		return nil, classify(err, driver.ErrUnavailable)
	}
	return &Store{table, redisPlace(rawURL)}, nil
}

// redisPlace names the database of a URL that rueidisconn accepted.
func redisPlace(rawURL string) string {
	u, err := parseAround(rawURL)
	if err != nil {
		return ""
	}
	path := strings.Trim(u.Path, "/")
	switch _, kind, _ := strings.Cut(u.Scheme, "+"); {
	case kind == "sentinel":
		master, db, _ := strings.Cut(path, "/")
		return "redis+sentinel:" + hostsOf(u, "26379") + "/" + master + "#" + number(db)
	case kind == "cluster":
		return "redis+cluster:" + hostsOf(u, "6379")
	case u.Host == "":
		return "redis:" + u.Path + "#" + number(u.Query().Get("db"))
	}
	return "redis:" + hostsOf(u, "6379") + "#" + number(path)
}

// hostsOf returns the hosts of a URL, sorted.
func hostsOf(u *url.URL, port string) string {
	all := strings.Split(u.Host, ",")
	for i, h := range all {
		if addr, err := hostPort(h, port); err == nil {
			all[i] = addr
		}
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), ",")
}

// number returns the number of a database without slashes and leading zeros.
func number(db string) string {
	if db = strings.TrimLeft(strings.Trim(db, "/"), "0"); db == "" {
		return "0"
	}
	return db
}
