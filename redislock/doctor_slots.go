package redislock

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/doctor"
)

// lookForMoves reports slots with locks that are moving to another server of a Cluster, or that an
// abandoned move left in between.
func (b *Backend) lookForMoves(ctx context.Context, s *survey, f *doctor.Findings) {
	if !b.cluster {
		return
	}
	ours := map[int]bool{}
	for shard := range shards {
		ours[slotOf(string(digits[shard>>4])+string(digits[shard&15]))] = true
	}
	asked, moving := false, false
	nodes := map[string]clusterNode{} // by id
	for _, a := range s.Ask(ctx, "CLUSTER", "NODES") {
		switch {
		case refused(a.Err):
			f.Add(driver.Finding{Code: slotsCode, Severity: driver.Unclear, MayEndanger: true, Server: a.Server,
				Found: fmt.Sprintf("whether slots are moving could not be found out: %v", a.Err), Why: whyMovesHarm,
				Do: "examine it as a user with the permission: ACL SETUSER NAME +cluster|nodes. Or run redis-cli --cluster check"})
			return
		case a.Err != nil: // a server that does not answer is a finding of its own
			continue
		}
		asked = true
		for _, n := range nodesOf(a.Value.Text) {
			nodes[n.id] = nodes[n.id].and(n)
		}
		for _, m := range movesOf(a.Value.Text) {
			if !ours[m.slot] {
				continue
			}
			moving = true
			f.Add(driver.Finding{Code: slotsCode, Severity: driver.Endangers, Server: a.Server,
				Found: fmt.Sprintf("slot %d, which keeps locks, is moving %s", m.slot, m.where), Why: whyMovesHarm,
				Do: "begin no failover before the move has ended, then wait until the replicas of the new owner have caught up; " +
					"redis-cli --cluster fix ends an abandoned move"})
		}
	}
	if unknown := s.lookAtNodes(nodes, f); asked && !moving && !unknown {
		f.Fine(slotsCode, "no slot that keeps locks is moving")
	}
}

// lookAtNodes reports the servers of a Cluster that were not examined, or that have failed. It reports whether
// one that did not answer may own slots: only the owner of a slot knows that it is moving.
func (s *survey) lookAtNodes(nodes map[string]clusterNode, f *doctor.Findings) (unknown bool) {
	open := func(server string, why any) {
		unknown = true
		f.Add(driver.Finding{Code: slotsCode, Severity: driver.Unclear, MayEndanger: true, Server: server,
			Found: fmt.Sprintf("whether slots are moving could not be found out: %v", why), Why: whyMovesHarm,
			Do: "run the examination again when the server answers"})
	}
	owners := map[string]bool{}
	for _, id := range slices.Sorted(maps.Keys(nodes)) {
		n := nodes[id]
		server := n.name(s.servers)
		owners[server] = owners[server] || n.is("master") || !n.is("slave")
		reach := driver.Finding{Code: reachCode, Server: server}
		switch {
		case s.silent[server] != nil || n.is("handshake"):
			continue
		case n.is("fail"):
			reach.Severity, reach.Why, reach.Found = driver.Slows, n.missed(), "the Cluster has marked this server as failed"
			reach.Do = "start it, or see why the others cannot reach it; if it is gone for good: redis-cli --cluster call ADDRESS " +
				"cluster forget " + id + ", with the ADDRESS of a server that lives"
		case !n.is("myself") && !slices.Contains(s.servers, server):
			reach.Severity, reach.Found = driver.Unclear, "not examined: the client does not lead to it"
			reach.Why = "no check of this server was made. Clients are not led to a replica that has no data yet, or whose " +
				"primary has failed, nor to a primary without slots"
			reach.Do = "see its role and its state with redis-cli INFO replication, and run the examination again"
		default:
			continue
		}
		if server == "" {
			reach.Found = fmt.Sprintf("nobody knows the address of node %.8s", id)
		} else {
			f.Add(reach)
		}
		if n.owns() && !n.is("myself") {
			open(server, reach.Found)
		}
	}
	for _, server := range slices.Sorted(maps.Keys(s.silent)) {
		if owns, listed := owners[server]; owns || !listed {
			open(server, s.silent[server])
		}
	}
	return unknown
}

const (
	slotsCode    = "redis.slots"
	whyMovesHarm = "while a slot moves, a failover of its old or its new owner may lose what it keeps; then grants are forgotten " +
		"and their locks granted again, whatever WaitReplicas says"
)

// move is a slot that a server gives away or receives.
type move struct {
	slot  int
	where string
}

// clusterNode is a server of a Cluster, as the answers to CLUSTER NODES describe it.
type clusterNode struct {
	id    string
	names []string // host:port, of its address and of its hostname
	flags []string
	slots []string
}

func (n clusterNode) is(flag string) bool { return slices.Contains(n.flags, flag) }

// owns reports whether n has slots, other than those that move to it or from it.
func (n clusterNode) owns() bool {
	return slices.ContainsFunc(n.slots, func(slot string) bool { return !strings.HasPrefix(slot, "[") })
}

// missed says what is missed while the server is away.
func (n clusterNode) missed() string {
	switch {
	case n.is("slave"):
		return "its primary lacks a replica that could confirm grants and take over"
	case n.owns():
		return "locks that this server keeps can neither be taken nor renewed"
	}
	return "it keeps no locks; when it is back, another server may have one more replica"
}

// and returns all that n and another answer say about the server.
func (n clusterNode) and(o clusterNode) clusterNode {
	return clusterNode{o.id, slices.Concat(n.names, o.names), slices.Concat(n.flags, o.flags),
		slices.Concat(n.slots, o.slots)}
}

// name returns the name of n among those that the client uses; else another one, or "" if there is none.
func (n clusterNode) name(used []string) string {
	for _, name := range n.names {
		if slices.Contains(used, name) {
			return name
		}
	}
	return append(n.names, "")[0]
}

// nodesOf parses the answer to CLUSTER NODES. The second word is ADDRESS:PORT@BUS or ADDRESS:PORT@BUS,HOSTNAME,
// without brackets around an IPv6 address. The address of a server that has none is :0.
func nodesOf(text string) (all []clusterNode) {
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) < 8 {
			continue
		}
		n := clusterNode{id: words[0], flags: strings.Split(words[2], ","), slots: words[8:]}
		addr, more, _ := strings.Cut(words[1], "@")
		_, hostname, _ := strings.Cut(more, ",")
		hostname, _, _ = strings.Cut(hostname, ",")
		colon := max(0, strings.LastIndexByte(addr, ':'))
		port := strings.TrimPrefix(addr[colon:], ":")
		for _, host := range []string{addr[:colon], hostname} {
			if host != "" && port != "0" {
				n.names = append(n.names, net.JoinHostPort(host, port))
			}
		}
		all = append(all, n)
	}
	return all
}

// movesOf returns the moves in the answer to CLUSTER NODES, for the server that answers: [slot->-id] gives
// away, [slot-<-id] receives.
func movesOf(nodes string) (all []move) {
	for _, n := range nodesOf(nodes) {
		if !n.is("myself") {
			continue
		}
		for _, w := range n.slots {
			w, ok := strings.CutPrefix(w, "[")
			if !ok {
				continue
			}
			way := "to"
			slot, id, ok := strings.Cut(strings.TrimSuffix(w, "]"), "->-")
			if !ok {
				way = "here from"
				slot, id, ok = strings.Cut(strings.TrimSuffix(w, "]"), "-<-")
			}
			if n, err := strconv.Atoi(slot); ok && err == nil {
				all = append(all, move{n, fmt.Sprintf("%s node %.8s", way, id)})
			}
		}
	}
	return all
}

// slotOf returns the slot of a hash tag: CRC16 (XMODEM) modulo the number of slots.
func slotOf(tag string) int {
	crc := uint16(0)
	for i := range len(tag) {
		crc ^= uint16(tag[i]) << 8
		for range 8 {
			carry := crc&0x8000 != 0
			crc <<= 1
			if carry {
				crc ^= 0x1021
			}
		}
	}
	return int(crc % 16384)
}
