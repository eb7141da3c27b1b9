package verify

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/relay"
	"github.com/holdfast-lock/holdfast/open"
)

// ports are the usual ports of stores, by the scheme of their URLs.
var ports = map[string]string{"redis": "6379", "rediss": "6379", "valkey": "6379", "zookeeper": "2181",
	"zookeepers": "2181", "mysql": "3306", "postgres": "5432", "postgresql": "5432", "etcd": "2379", "consul": "8500"}

// address is the URL of a store whose client is not ours. Only its servers are looked at.
type address struct {
	scheme, user, path string   // user with its @; path with everything that follows it
	servers            []string // host:port
}

func parseAddress(raw string) (a address, err error) {
	var rest string
	var ok bool
	if a.scheme, rest, ok = strings.Cut(raw, "://"); !ok || a.scheme == "" {
		return a, fmt.Errorf("%w store URL: a worker of another lock needs SCHEME://HOST[:PORT][,HOST...]/PATH", driver.ErrInvalid)
	}
	base, kind, _ := strings.Cut(a.scheme, "+")
	if kind == "sentinel" || kind == "cluster" {
		return a, fmt.Errorf("%w store URL: clients of a %s ask it for addresses, and would go around the relay; name one server",
			driver.ErrInvalid, kind)
	}
	hosts := rest
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		hosts, a.path = rest[:i], rest[i:]
	}
	if i := strings.LastIndexByte(hosts, '@'); i >= 0 {
		a.user, hosts = hosts[:i+1], hosts[i+1:]
	}
	if hosts == "" {
		return a, nil // a file, or a socket
	}
	for host := range strings.SplitSeq(hosts, ",") {
		u, err := url.Parse("x://" + host)
		if err != nil || u.Hostname() == "" {
			return a, fmt.Errorf("%w store URL: the host cannot be parsed", driver.ErrInvalid)
		}
		port := u.Port()
		if port == "" {
			if port = ports[base]; port == "" {
				return a, fmt.Errorf("%w store URL: name the port of %s", driver.ErrInvalid, u.Hostname())
			}
		}
		a.servers = append(a.servers, net.JoinHostPort(u.Hostname(), port))
	}
	return a, nil
}

// at returns the URL with other servers.
func (a address) at(servers []string) string {
	return a.scheme + "://" + a.user + strings.Join(servers, ",") + a.path
}

// place is the URL for people, without credentials and parameters.
func (a address) place() string {
	path, _, _ := strings.Cut(a.path, "?")
	return a.scheme + "://" + strings.Join(a.servers, ",") + path
}

// externalAddress returns the address for External. Beside it the parameters of a Redis URL are those
// of holdfast.
func (r *run) externalAddress() (a address, err error) {
	a, err = parseAddress(r.URL)
	if base, _, _ := strings.Cut(a.scheme, "+"); r.Beside > 0 && ports[base] == ports["redis"] {
		a.path, _, _ = strings.Cut(a.path, "?")
	}
	return a, err
}

// reach takes the place of connect for a store that only the worker knows.
func (r *run) reach(ctx context.Context) error {
	a := r.address
	ctx, cancel := context.WithTimeout(ctx, openLimit)
	defer cancel()
	for _, server := range a.servers {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", server)
		if err != nil {
			return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
		}
		_ = c.Close()
	}
	r.remote, r.place, r.ttl, r.prefix = len(a.servers) > 0, a.place(), r.TTL, "verify/"+random(4)+"/"
	var err error
	if r.kinds, err = checkKinds(r.Kinds, r.remote, r.Faults); err != nil {
		return err
	}
	return r.checkDuration()
}

// startExternal starts a worker of the user's, with addresses of its own for the store's servers.
func (r *run) startExternal(i, runNumber int, name string) (*process, error) {
	a := r.address
	var through []string
	var stops []func()
	stop := func() {
		for _, f := range stops {
			f()
		}
	}
	for _, server := range a.servers {
		addr, end, err := r.relay.forward(relay.Ends{Client: name, Server: server})
		if err != nil {
			stop()
			return nil, err
		}
		through, stops = append(through, addr), append(stops, end)
	}
	w, err := r.newExternalWorker(name)
	if err != nil {
		stop()
		return nil, err
	}
	cmd := shellCommand(r.External)
	cmd.Env = open.Environ()
	p, err := startProcess(cmd, i, runNumber, name, startOrder{"start", a.at(through), r.ttl.Milliseconds()}, w,
		r.onProgress)
	if err != nil {
		stop()
		w.die()
		_ = w.rec.Close() // it has no attempt
		return nil, err
	}
	go func() {
		<-p.ended
		stop()
	}()
	return p, nil
}

// introduction returns what the workers have said about their lock.
func (r *run) introduction() string {
	i := slices.IndexFunc(r.all, func(p *process) bool { return p.external != nil && p.external.hello.Worker != "" })
	if i < 0 {
		return ""
	}
	h := r.all[i].external.hello
	var lacks []string
	for _, c := range []struct {
		has  bool
		what string
	}{{h.Tokens, "fencing tokens"}, {h.Queue, "queue"}, {h.Wait, "waiting call"}} {
		if !c.has {
			lacks = append(lacks, "no "+c.what)
		}
	}
	if len(lacks) == 0 {
		return h.Worker
	}
	return h.Worker + ", which has " + strings.Join(lacks, ", ")
}
