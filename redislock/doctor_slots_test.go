package redislock

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/internal/doctor"
)

// TestDoctorNodes: what h:1 says of another server of a Cluster. The client calls it by one of its names,
// or does not lead to it.
func TestDoctorNodes(t *testing.T) {
	const (
		primary = " master - 0 0 1 connected "
		replica = " slave n1 0 0 1 connected "
		down    = " master,fail - 0 0 1 connected "
		failed  = " slave,fail n1 0 0 1 connected "
	)
	for name, c := range map[string]struct {
		line   string
		server string // as the client calls it, which leads to it
		silent bool
		want   string
	}{
		"a silent replica":                 {"h:2@12" + replica, "h:2", true, ""},
		"a silent replica at IPv6":         {"::1:2@12" + replica, "[::1]:2", true, ""},
		"a silent replica with a hostname": {"10.0.0.2:2@12,two,shard-id=x" + replica, "two:2", true, ""},
		"a silent primary":                 {"h:2@12" + primary + "0-5", "h:2", true, "slots unknown h:2"},
		"a silent primary at IPv6":         {"::1:2@12" + primary + "0-5", "[::1]:2", true, "slots unknown [::1]:2"},
		"a silent server of unknown role":  {"h:2@12" + replica, "h:3", true, "reach unknown h:2, slots unknown h:3"},
		"a failed replica":                 {"h:2@12" + failed, "", false, "reach slows h:2"},
		"a failed replica at IPv6":         {"::1:2@12" + failed, "", false, "reach slows [::1]:2"},
		"a failed replica with a hostname": {"10.0.0.2:2@12,two" + failed, "two:2", false, "reach slows two:2"},
		"a failed replica that is silent":  {"::1:2@12" + failed, "[::1]:2", true, ""}, // a finding of its own
		"a failed replica of no address":   {":0@0,two slave,fail,noaddr n1 0 0 1 connected", "", false, ""},
		"a failed primary":                 {"h:2@12" + down + "0-5", "", false, "reach slows h:2, slots unknown h:2"},
		"a failed primary without slots":   {"h:2@12" + down, "", false, "reach slows h:2"},
		"a failed primary of no address":   {":0@0 master,fail,noaddr - 0 0 1 connected 0-5", "", false, "slots unknown "},
		"a primary of no address":          {":0@0 master,noaddr - 0 0 1 connected 0-5", "", false, "slots unknown "},
		"a primary that nobody asked":      {"h:2@12" + primary + "0-5", "", false, "reach unknown h:2, slots unknown h:2"},
		"a primary that receives slots":    {"h:2@12" + primary + "[7-<-n1]", "", false, "reach unknown h:2"},
		"a replica that nobody asked":      {"h:2@12" + replica, "", false, "reach unknown h:2"},
		"a server that nobody knows yet":   {"h:2@12 handshake - 0 0 0 connected", "", false, ""},
		"two primaries that answer":        {"h:2@12" + primary + "0-5", "h:2", false, ""},
		"a failed primary that answers":    {"h:2@12 myself,master,fail - 0 0 1 up 0-5", "h:2", false, "reach slows h:2"},
	} {
		t.Run(name, func(t *testing.T) {
			s, f := &survey{servers: []string{"h:1"}, silent: map[string]error{}}, doctor.Findings{}
			if c.server != "" {
				s.servers = append(s.servers, c.server)
			}
			if c.silent {
				s.silent[c.server] = errors.New("silence")
			}
			nodes := map[string]clusterNode{}
			for _, n := range nodesOf("n1 h:1@11 myself,master - 0 0 1 connected 6-9\nn2 " + c.line + "\n") {
				nodes[n.id] = nodes[n.id].and(n)
			}
			unknown := s.lookAtNodes(nodes, &f)
			var got []string
			for _, found := range f.List {
				got = append(got, fmt.Sprintf("%s %v %s", strings.TrimPrefix(found.Code, "redis."), found.Severity, found.Server))
			}
			slices.Sort(got)
			if all := strings.Join(got, ", "); all != c.want || unknown != strings.Contains(c.want, "slots") {
				t.Errorf("%q, want %q; slots are unknown: %v", all, c.want, unknown)
			}
		})
	}
}
