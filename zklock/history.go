package zklock

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/zk"
)

// Each history is one persistent node in a folder of its own, whatever the protocol: no lock's folder
// has it, and no name has its path. Its data are lines that people can read: a first line, then an
// entry each. The steps that write it depend on its version.
//
//	holdfast/1 history
//	{"at":1764000000000,"text":"granted …"}
//	{"text":"released …"}
//
// Times are the servers', in milliseconds. The last entry has none, because its writer does not know
// it: it is when the data were written. Whoever adds the next entry writes it down.

const (
	historyDir    = reserved + ":history"
	historyOfNone = "%" // the node of the empty name; no name is encoded so
	historyMagic  = magic + " history"

	// maxHistoryData bounds a node's data, in bytes. Servers accept requests of 1 MiB (jute.maxbuffer).
	maxHistoryData = 512 << 10
)

// event is an entry of a history, as the node's data have it.
type event struct {
	At   int64  `json:"at,omitempty"` // 0: when the data were written
	Text string `json:"text"`
}

func (b *Backend) historyFolder() string { return b.root + "/" + historyDir }

func (b *Backend) historyPath(name string) string {
	if name == "" {
		return b.historyFolder() + "/" + historyOfNone
	}
	return b.historyFolder() + strings.TrimPrefix(b.flat(name), b.root)
}

// AddHistory implements driver.Backend. A history has at most keep entries, and at most as many as
// fit into 512 KiB.
func (b *Backend) AddHistory(ctx context.Context, name, text string, keep int) error {
	if err := driver.CheckEntry(name, text, keep); err != nil {
		return err
	}
	return b.withAnyLink(ctx, func(l *link) error {
		err := l.addHistory(ctx, b.historyPath(name), text, keep)
		if err == nil && rand.N(historySweep) == 0 {
			l.sweepHistories(ctx)
		}
		return err
	})
}

func (l *link) addHistory(ctx context.Context, path, text string, keep int) error {
	const most = 64 // attempts; each fails only if another client has written the history meanwhile
	for try := 1; ; try++ {
		n, err := l.SyncAndGet(ctx, path)
		if err == nil {
			var list []event
			if list, err = parseHistory(path, &n); err != nil {
				return err
			}
			if slices.ContainsFunc(list, func(e event) bool { return e.Text == text }) {
				return nil
			}
			_, err = l.Set(ctx, path, historyData(append(list, event{Text: text}), keep), n.Stat.Version)
		} else if errors.Is(err, zk.ErrNoNode) {
			op := zk.CreateOp(path, historyData([]event{{Text: text}}, keep), zk.Persistent, l.b.acl)
			_, err = l.multiIn(ctx, parent(path), op)
		}
		if !errors.Is(err, zk.ErrNoNode) && !errors.Is(err, zk.ErrNodeExists) && !errors.Is(err, zk.ErrBadVersion) {
			return err
		}
		if try == most {
			return errHistoryContention
		}
		select {
		case <-time.After(rand.N(time.Duration(min(try, 32)) * time.Millisecond)):
		case <-ctx.Done():
			return errHistoryContention
		}
	}
}

var errHistoryContention = fmt.Errorf("zookeeper: %w: the history changes too quickly", driver.ErrUnavailable)

// historyData returns a node's data: the last entries, up to keep, that fit.
func historyData(list []event, keep int) []byte {
	size, lines := len(historyMagic)+1, [][]byte(nil)
	for _, e := range slices.Backward(list[max(0, len(list)-keep):]) {
		line := e.line()
		if size += len(line); size > maxHistoryData {
			break
		}
		lines = append(lines, line)
	}
	slices.Reverse(lines)
	return slices.Concat([]byte(historyMagic+"\n"), bytes.Join(lines, nil))
}

func (e *event) line() []byte {
	var b bytes.Buffer
	w := json.NewEncoder(&b)
	w.SetEscapeHTML(false)
	_ = w.Encode(e) // cannot fail
	return b.Bytes()
}

// parseHistory returns the entries of a node. All have a time.
func parseHistory(path string, n *zk.Node) (list []event, err error) {
	head, rest, _ := strings.Cut(string(n.Data), "\n")
	if head != historyMagic {
		return nil, damagedHistory(path, "its first line is not %q: %.60q", historyMagic, head)
	}
	for line := range strings.Lines(rest) {
		var e event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			return nil, damagedHistory(path, "the line %.60q: %w", line, err)
		}
		if e.Text == "" || len(e.Text) > driver.MaxEntry || !utf8.ValidString(e.Text) || e.At < 0 {
			return nil, damagedHistory(path, "no entry of a history: %.60q", line)
		}
		if e.At == 0 {
			e.At = n.Stat.Mtime
		}
		list = append(list, e)
	}
	return list[max(0, len(list)-driver.MaxHistory):], nil
}

func damagedHistory(path, format string, args ...any) error {
	return fmt.Errorf("%w: the history node %s: "+format, append([]any{driver.ErrDamaged, path}, args...)...)
}

// History implements driver.Backend. The history of a name that has none is one exchange.
func (b *Backend) History(ctx context.Context, name string) (entries []driver.Entry, err error) {
	if err := driver.CheckHistoryName(name); err != nil {
		return nil, err
	}
	err = b.withAnyLink(ctx, func(l *link) error {
		path := b.historyPath(name)
		n, err := l.SyncAndGet(ctx, path)
		if errors.Is(err, zk.ErrNoNode) {
			return nil
		}
		if err != nil {
			return err
		}
		list, err := parseHistory(path, &n)
		if err != nil {
			return err
		}
		now, err := l.historyClock(ctx)
		if err != nil {
			return err
		}
		for _, e := range list {
			age := time.Duration(max(0, now-e.At)) * time.Millisecond
			entries = append(entries, driver.Entry{Text: e.Text, Age: age})
		}
		return nil
	})
	return entries, err
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

// sweepHistories removes old histories. It ignores errors: a later call continues.
func (l *link) sweepHistories(ctx context.Context) {
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
		if n.Err != nil || now-n.Stat.Mtime <= driver.HistoryLife.Milliseconds() || removed == historySweep {
			continue
		}
		removed++
		_ = l.Delete(ctx, paths[i], n.Stat.Version) // fails if somebody has added an entry
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
