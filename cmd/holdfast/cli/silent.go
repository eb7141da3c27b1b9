package cli

import (
	"cmp"
	"fmt"
	"net"
	"strings"
	"time"
)

// dialLimit bounds the look at a server that has not answered.
const dialLimit = time.Second

// usualPorts are those of the servers of stores, by what the scheme of a URL begins with.
var usualPorts = []struct{ scheme, port, server string }{
	{"redis", "6379", "Redis"}, {"valkey", "6379", "Redis"},
	{"zookeeper", "2181", "ZooKeeper"}, {"zk", "2181", "ZooKeeper"},
	{"mysql", "3306", "MySQL"}, {"mariadb", "3306", "MySQL"}, {"postgres", "5432", "PostgreSQL"},
}

const silentOther = "the silent one may be another"

// silentServers says what is at the addresses of a store that has not answered: a server that takes
// connections is stopped or overloaded, or another one; else the network or the machine is down.
func silentServers(url string) string {
	addrs := addresses(url)
	takes := make(chan bool, len(addrs))
	for _, addr := range addrs {
		go func() {
			c, err := net.DialTimeout("tcp", addr, dialLimit)
			if err == nil {
				_ = c.Close()
			}
			takes <- err == nil
		}()
	}
	n := 0
	for range addrs {
		if <-takes {
			n++
		}
	}
	const stopped = "stopped, overloaded, or no server of this kind; look at its process and its log"
	switch {
	case len(addrs) == 0:
		return ""
	case n == 0:
		return "no connection is possible either: the machine is down, or a firewall drops what is sent"
	}
	scheme, _, _ := strings.Cut(url, "://")
	leads := strings.HasSuffix(scheme, "+cluster") || strings.HasSuffix(scheme, "+sentinel") // to other servers
	switch {
	case leads && len(addrs) == 1:
		return "the server of the URL takes connections" + otherPort(url, addrs[0]) + "; " + silentOther
	case leads:
		return fmt.Sprintf("%d of %d servers of the URL take connections; %s", n, len(addrs), silentOther)
	case len(addrs) == 1:
		return "it takes connections and says nothing, so it is " + stopped + otherPort(url, addrs[0])
	}
	return fmt.Sprintf("%d of %d servers take connections; one of them that does not answer is %s", n, len(addrs), stopped)
}

// addresses returns the servers of a URL, each with its port; none for a socket or a file.
func addresses(url string) (list []string) {
	scheme, rest, ok := strings.Cut(url, "://")
	port := ""
	for _, u := range usualPorts {
		if strings.HasPrefix(strings.ToLower(scheme), u.scheme) {
			port = cmp.Or(port, u.port)
		}
	}
	if !ok || port == "" || strings.HasSuffix(scheme, "+unix") {
		return nil
	}
	if strings.HasSuffix(scheme, "+sentinel") {
		port = "26379"
	}
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		rest = rest[:i]
	}
	rest = rest[strings.LastIndexByte(rest, '@')+1:]
	for host := range strings.SplitSeq(rest, ",") {
		if host == "" {
			continue
		}
		if _, _, err := net.SplitHostPort(host); err != nil {
			host = net.JoinHostPort(strings.Trim(host, "[]"), port)
		}
		list = append(list, host)
	}
	return list
}

// otherPort says which server the port mostly belongs to, if that is another than the URL says.
func otherPort(url, addr string) string {
	_, port, _ := net.SplitHostPort(addr)
	for _, u := range usualPorts {
		if port == u.port && strings.HasPrefix(strings.ToLower(url), u.scheme) {
			return ""
		}
	}
	for _, u := range usualPorts {
		if port == u.port {
			return fmt.Sprintf(" (port %s is mostly that of %s)", port, u.server)
		}
	}
	return ""
}
