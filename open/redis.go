package open

import (
	"net/url"
	"slices"
	"strings"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/storeurl"
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

// redisPlace names the database of a URL that rueidisconn accepted, with its servers sorted, and the
// dialect.
func redisPlace(rawURL string) string {
	u, query, err := storeurl.Parse(rawURL)
	if err != nil {
		return ""
	}
	place := databasePlace(u, query)
	if dialect := query.Get("dialect"); dialect != "" {
		place += " " + dialect
	}
	return place
}

func databasePlace(u *url.URL, query url.Values) string {
	_, kind, _ := strings.Cut(u.Scheme, "+")
	port, path := "6379", strings.Trim(u.Path, "/")
	if kind == "sentinel" {
		port = "26379"
	}
	list, _ := storeurl.Hosts(u.Host, port) // none of a socket
	slices.Sort(list)
	switch hosts := strings.Join(list, ","); {
	case kind == "sentinel":
		master, db, _ := strings.Cut(path, "/")
		return "redis+sentinel:" + hosts + "/" + master + "#" + number(db)
	case kind == "cluster":
		return "redis+cluster:" + hosts
	case hosts == "":
		return "redis:" + u.Path + "#" + number(query.Get("db"))
	default:
		return "redis:" + hosts + "#" + number(path)
	}
}

// number returns the number of a database without slashes and leading zeros.
func number(db string) string {
	if db = strings.TrimLeft(strings.Trim(db, "/"), "0"); db == "" {
		return "0"
	}
	return db
}
