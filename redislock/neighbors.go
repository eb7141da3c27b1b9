package redislock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// Neighbors implements driver.Neighbor. Other lock libraries mostly use the name itself as the key,
// or put "lock:" before it.
func (b *Backend) Neighbors(ctx context.Context, name string) ([]string, error) {
	if err := driver.CheckName(name); err != nil {
		return nil, err
	}
	if b.err != nil {
		return nil, b.err
	}
	asker, ok := b.asker()
	if !ok {
		return nil, nil
	}
	var found []string
	for _, key := range []string{name, "lock:" + name} {
		if strings.HasPrefix(key, b.prefix+"{") { // the key of another lock of ours
			continue
		}
		kind, err := askAbout(ctx, asker, "TYPE", key)
		if err != nil {
			return found, err
		}
		if kind.Text == "none" || kind.Text == "" {
			continue
		}
		left, err := askAbout(ctx, asker, "PTTL", key)
		if err != nil {
			return found, err
		}
		expiry := "never expires"
		if left.Int >= 0 {
			d := time.Duration(left.Int) * time.Millisecond
			expiry = fmt.Sprintf("expires in %v", d.Round(time.Second))
		}
		found = append(found, fmt.Sprintf("key %q (%s, %s)", key, kind.Text, expiry))
	}
	return found, nil
}

// askAbout asks about a key. In a Cluster the servers without the key answer with an error.
func askAbout(ctx context.Context, asker Asker, command, key string) (Value, error) {
	var first error
	for _, a := range asker.Ask(ctx, command, key) {
		r := (*Refusal)(nil)
		switch {
		case a.Err == nil:
			return a.Value, nil
		case errors.As(a.Err, &r) && (r.Code == "MOVED" || r.Code == "ASK"):
		case first == nil:
			first = a.Err
		}
	}
	return Value{}, first
}
