package redislock

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/doctor"
)

// lookForMoves reports slots with locks that are moving to another server of a Cluster, or that an
// abandoned move left in between.
func (b *Backend) lookForMoves(ctx context.Context, s *survey, f *doctor.Findings) {
	const code = "redis.slots"
	if !b.cluster {
		return
	}
	ours := map[int]bool{}
	for shard := range shards {
		ours[slotOf(string(digits[shard>>4])+string(digits[shard&15]))] = true
	}
	asked, moving := false, false
	for _, a := range s.Ask(ctx, "CLUSTER", "NODES") {
		switch {
		case refused(a.Err):
			f.Add(driver.Finding{Code: code, Severity: driver.Unclear, MayEndanger: true, Server: a.Server,
				Found: fmt.Sprintf("whether slots are moving could not be found out: %v", a.Err), Why: whyMovesHarm,
				Do: "examine it as a user with the permission: ACL SETUSER NAME +cluster|nodes. Or run redis-cli --cluster check"})
			return
		case a.Err != nil: // a server that does not answer is a finding of its own
			continue
		}
		asked = true
		for _, m := range movesOf(a.Value.Text) {
			if !ours[m.slot] {
				continue
			}
			moving = true
			f.Add(driver.Finding{Code: code, Severity: driver.Endangers, Server: a.Server,
				Found: fmt.Sprintf("slot %d, which keeps locks, is moving %s", m.slot, m.where), Why: whyMovesHarm,
				Do: "begin no failover before the move has ended, then wait until the replicas of the new owner have caught up; " +
					"redis-cli --cluster fix ends an abandoned move"})
		}
	}
	if asked && !moving {
		f.Fine(code, "no slot that keeps locks is moving")
	}
}

const whyMovesHarm = "if the old or the new owner is replaced before the slot has arrived, and its replicas' copy is lost with it, " +
	"grants are forgotten and their locks granted again, whatever WaitReplicas says"

// move is a slot that a server gives away or receives.
type move struct {
	slot  int
	where string
}

// movesOf parses the answer to CLUSTER NODES, for the server that answers: [slot->-id] gives away,
// [slot-<-id] receives.
func movesOf(nodes string) (all []move) {
	for line := range strings.Lines(nodes) {
		words := strings.Fields(line)
		if len(words) < 8 || !slices.Contains(strings.Split(words[2], ","), "myself") {
			continue
		}
		for _, w := range words[8:] {
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
