package zklock

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/zk"
)

// Each history is a persistent node in a folder of its own, whatever the protocol: no lock's folder has
// it, and no name has its path. Its entries are persistent nodes below it, named by number and by a
// digest of the text, which is their data; the servers write down when they were created.
//
//	/holdfast/%holdfast:history/deploy%2Fprod/0000000041-8a1c…
//
// Every step that changes a history also writes its node, depending on the version that the step has
// read. So entries have different numbers, and no text is added twice. The servers keep the last 500
// steps in their memory: an entry is a small step, but a history in one node would not be.

const (
	historyDir    = reserved + ":history"
	historyOfNone = "%" // the node of the empty name; no name is encoded so
	historyData   = magic + " history"
)

// event is an entry of a history, as its node's name has it.
type event struct {
	node, digest string
	seq          int64
}

func (b *Backend) historyFolder() string { return b.root + "/" + historyDir }

func (b *Backend) historyPath(name string) string {
	if name == "" {
		return b.historyFolder() + "/" + historyOfNone
	}
	return b.historyFolder() + strings.TrimPrefix(b.flat(name), b.root)
}

// AddHistory implements driver.Backend.
func (b *Backend) AddHistory(ctx context.Context, name, text string, keep int) error {
	if err := driver.CheckEntry(name, text, keep); err != nil {
		return err
	}
	return b.withAnyLink(ctx, func(l *link) error {
		err := l.addHistory(ctx, b.historyPath(name), text, keep)
		if err == nil && rand.N(historySweep) == 0 {
			l.sweepHistories(ctx, driver.HistoryLife)
		}
		return err
	})
}

func (l *link) addHistory(ctx context.Context, path, text string, keep int) error {
	const most = 64 // attempts; each fails only if another client has written the history meanwhile
	for try := 1; ; try++ {
		done, err := l.addEntry(ctx, path, text, keep)
		switch {
		case err == nil && done:
			return nil
		case err == nil: // there are more entries to drop than fit into one step
			try = 0
			continue
		case !errors.Is(err, zk.ErrNoNode) && !errors.Is(err, zk.ErrNodeExists) && !errors.Is(err, zk.ErrBadVersion):
			return err
		case try == most:
			return errHistoryContention
		}
		select {
		case <-time.After(rand.N(time.Duration(min(try, 32)) * time.Millisecond)):
		case <-ctx.Done():
			return errHistoryContention
		}
		if err := l.Sync(ctx, path); err != nil { // the connected server may be behind
			return err
		}
	}
}

var errHistoryContention = fmt.Errorf("zookeeper: %w: the history changes too quickly", driver.ErrUnavailable)

// addEntry is one attempt: a step that adds the entry, unless the history has it, and drops the oldest.
// What it has read may be old; then the step fails.
func (l *link) addEntry(ctx context.Context, path, text string, keep int) (done bool, err error) {
	const mostDropped = 200 // in one step: long paths, too, fit into one request
	sum := sha256.Sum256([]byte(text))
	next := event{digest: hex.EncodeToString(sum[:16])}
	nodes, _, lists := l.GetAndList(ctx, zk.Handler{}, []string{path}, path) // the version first
	if errors.Is(nodes[0].Err, zk.ErrNoNode) {
		_, err = l.multiIn(ctx, parent(path), zk.CreateOp(path, []byte(historyData), zk.Persistent, l.b.acl),
			zk.CreateOp(path+"/"+next.name(), []byte(text), zk.Persistent, l.b.acl))
		return true, err
	}
	if err := cmp.Or(nodes[0].Err, lists[0].Err); err != nil {
		return false, err
	}
	list, err := parseHistory(path, lists[0].Names)
	if err != nil {
		return false, err
	}
	ops := []zk.Op{zk.SetOp(path, []byte(historyData), nodes[0].Stat.Version)}
	excess := len(list) - keep
	if !slices.ContainsFunc(list, func(e event) bool { return e.digest == next.digest }) {
		if len(list) > 0 {
			next.seq = list[len(list)-1].seq + 1
		}
		ops = append(ops, zk.CreateOp(path+"/"+next.name(), []byte(text), zk.Persistent, l.b.acl))
		excess++
	} else if excess <= 0 {
		return true, nil
	}
	for _, e := range list[:max(0, min(excess, mostDropped, len(list)))] {
		ops = append(ops, zk.DeleteOp(path+"/"+e.node, zk.AnyVersion))
	}
	_, err = l.Multi(ctx, ops...)
	return excess <= mostDropped, err
}

func (e *event) name() string { return fmt.Sprintf("%010d-%s", e.seq, e.digest) }

// parseHistory returns the entries of a history with these nodes, in order.
func parseHistory(path string, nodes []string) ([]event, error) {
	list := make([]event, 0, len(nodes))
	for _, n := range nodes {
		e := event{node: n}
		number, digest, _ := strings.Cut(n, "-")
		var err error
		e.digest = digest
		e.seq, err = strconv.ParseInt(number, 10, 64)
		if err != nil || e.seq == math.MaxInt64 || e.name() != n || len(digest) != 32 {
			return nil, damagedHistory(path, "another program has created the node %.60q in it", n)
		}
		list = append(list, e)
	}
	slices.SortFunc(list, func(a, b event) int { return cmp.Compare(a.seq, b.seq) })
	return list, nil
}

func damagedHistory(path, format string, args ...any) error {
	return fmt.Errorf("%w: the history %s: "+format, append([]any{driver.ErrDamaged, path}, args...)...)
}

// History implements driver.Backend. The history of a name that has none is one exchange.
func (b *Backend) History(ctx context.Context, name string) (entries []driver.Entry, err error) {
	if err := driver.CheckHistoryName(name); err != nil {
		return nil, err
	}
	err = b.withAnyLink(ctx, func(l *link) (err error) {
		entries, err = l.history(ctx, b.historyPath(name))
		return err
	})
	return entries, err
}

func (l *link) history(ctx context.Context, path string) (entries []driver.Entry, err error) {
	all, err := l.list(ctx, path)
	if err != nil || len(all[0].Names) == 0 {
		return nil, err
	}
	list, err := parseHistory(path, all[0].Names)
	if err != nil {
		return nil, err
	}
	now, err := l.historyClock(ctx)
	if err != nil {
		return nil, err
	}
	const atOnce = 100
	for some := range slices.Chunk(list[max(0, len(list)-driver.MaxHistory):], atOnce) {
		var paths []string
		for _, e := range some {
			paths = append(paths, path+"/"+e.node)
		}
		nodes, _ := l.GetAll(ctx, nil, paths...)
		for i, n := range nodes {
			switch {
			case errors.Is(n.Err, zk.ErrNoNode): // dropped since
				continue
			case n.Err != nil:
				return nil, n.Err
			case len(n.Data) == 0 || len(n.Data) > driver.MaxEntry || !utf8.Valid(n.Data):
				return nil, damagedHistory(path, "the data of the node %q are no text of 1 to %d bytes: %.60q", some[i].node,
					driver.MaxEntry, n.Data)
			}
			age := time.Duration(max(0, now-n.Stat.Ctime)) * time.Millisecond
			entries = append(entries, driver.Entry{Text: string(n.Data), Age: age})
		}
	}
	return entries, nil
}

// historyClock returns the servers' clock. To read it, a node is written: once a minute is enough for
// ages. Without permission to do that, this machine's clock must do.
func (l *link) historyClock(ctx context.Context) (int64, error) {
	now, err := l.clockWithin(ctx, l.b.historyFolder(), time.Minute)
	if errors.Is(err, zk.ErrNoAuth) || errors.Is(err, zk.ErrNoNode) {
		return time.Now().UnixMilli(), nil
	}
	return now, err
}

// One call of AddHistory in historySweep looks at some histories, and removes those that are old. It
// removes as many as there can be new ones, once a quarter of all is old.
const (
	historySweep  = 64
	historySample = 4 * historySweep
)

// sweepHistories removes histories whose last entry is older than life. It ignores errors: a later call
// continues.
func (l *link) sweepHistories(ctx context.Context, life time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	dir := l.b.historyFolder()
	names := l.ListAll(ctx, dir)[0].Names
	if len(names) == 0 {
		return
	}
	now, err := l.clockWithin(ctx, dir, time.Minute)
	if err != nil {
		return
	}
	rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	var paths []string
	for _, n := range names[:min(len(names), historySample)] {
		if !momentary(n) {
			paths = append(paths, dir+"/"+n)
		}
	}
	removed := 0
	for i, n := range l.StatAll(ctx, paths...) {
		if n.Err != nil || now-n.Stat.Mtime <= life.Milliseconds() || removed == historySweep {
			continue
		}
		removed++
		l.removeHistory(ctx, paths[i], n.Stat.Version)
	}
}

// removeHistory deletes the history that has this version. The write between the listing and the
// deletions fails if somebody has added an entry; an entry added later is in no listing and stays.
func (l *link) removeHistory(ctx context.Context, path string, version int32) {
	nodes := l.ListAll(ctx, path)[0].Names
	stat, err := l.Set(ctx, path, []byte(historyData), version)
	if err == nil && l.deleteAll(ctx, path, nodes) == nil {
		_ = l.Delete(ctx, path, stat.Version)
	}
}

// withAnyLink runs f on the session of a client, if one is open: every client reads histories, and
// servers bound the connections from one address. If there is none, or if it ends meanwhile, f runs
// on the operators' session.
func (b *Backend) withAnyLink(ctx context.Context, f func(*link) error) error {
	b.mu.Lock()
	closed, l := b.closed, b.client
	b.mu.Unlock()
	if closed {
		return driver.ErrClosed
	}
	if l != nil && l.Err() == nil {
		if err := f(l); err == nil || l.Err() == nil {
			return explainOps(err)
		}
	}
	l, err := b.operator(ctx)
	if err != nil {
		return err
	}
	return explainOps(f(l))
}

// WhyMissing implements driver.Backend. The servers delete a node only with its session, or when a
// client asks for it.
func (b *Backend) WhyMissing(_ context.Context, name string, _ time.Duration) (driver.Cause, error) {
	if err := b.check(name); err != nil {
		return driver.CauseUnknown, err
	}
	return driver.CauseDeleted, nil
}
