package zklock

import (
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdfast-lock/holdfast/driver"
)

// record is the data of a node that holdfast creates: a line of words, then the request's Info. It
// is readable in ZooKeeper's own shell.
//
//	holdfast/1 id=k3v…-7 ttl=15000
//	{"host":"web-1","pid":77,"prog":"orders"}
type record struct {
	id    string
	ttl   time.Duration // of the session that created it
	n     int           // permits, on the first of several nodes
	limit int           // of a semaphore
	token uint64        // of a grant that has moved to this node from another
	keep  time.Duration // how long the name stays taken after the write
	info  string
}

const magic = "holdfast/1"

func (r *record) String() string {
	var b strings.Builder
	b.WriteString(magic)
	word := func(key string, v int64) {
		if v != 0 {
			b.WriteString(" " + key + "=" + strconv.FormatInt(v, 10))
		}
	}
	if r.id != "" {
		b.WriteString(" id=" + r.id)
	}
	word("ttl", r.ttl.Milliseconds())
	word("n", int64(r.n))
	word("limit", int64(r.limit))
	word("token", int64(r.token))
	word("keep", ceilMilliseconds(r.keep))
	b.WriteByte('\n')
	b.WriteString(r.info)
	return b.String()
}

func (r *record) bytes() []byte { return []byte(r.String()) }

// ceilMilliseconds rounds up, so that a name is not kept for less than was asked.
func ceilMilliseconds(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

// parseRecord reads a node's data. It returns data that others wrote as info, for people to read.
func parseRecord(data []byte) record {
	text := string(data)
	head, info, ok := strings.Cut(text, "\n")
	words := strings.Split(head, " ")
	if !ok || words[0] != magic {
		return record{info: foreign(text)}
	}
	r := record{info: info}
	for _, w := range words[1:] {
		key, value, _ := strings.Cut(w, "=")
		if key == "id" {
			if driver.CheckID(value) == nil {
				r.id = value
			}
			continue
		}
		v, err := strconv.ParseInt(value, 10, 64)
		if err != nil || v < 0 {
			continue
		}
		d := time.Duration(min(v, int64(driver.MaxHold/time.Millisecond))) * time.Millisecond
		switch key {
		case "ttl":
			r.ttl = d
		case "n":
			r.n = int(min(v, driver.MaxLimit))
		case "limit":
			r.limit = int(min(v, driver.MaxLimit))
		case "token":
			r.token = uint64(v)
		case "keep":
			r.keep = d
		}
	}
	return r
}

// foreign makes another program's data fit to be shown.
func foreign(text string) string {
	text = text[:min(len(text), driver.MaxInfo)]
	if !utf8.ValidString(text) {
		return strconv.QuoteToASCII(text)[:min(len(text), 200)]
	}
	return text
}
