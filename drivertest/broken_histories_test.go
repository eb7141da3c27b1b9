package drivertest

import (
	"context"
	"slices"
	"strings"

	"github.com/holdfast-lock/holdfast/driver"
)

// brokenHistories are stores with a mistake in their histories.
var brokenHistories = []broken{
	{name: "history without a bound", rule: "R20", backend: func(b driver.Backend) driver.Backend {
		return &historian{Backend: b, add: func(ctx context.Context, name, text string, _ int) error {
			return b.AddHistory(ctx, name, text, driver.MaxHistory)
		}}
	}},
	{name: "repeats are added", rule: "R20", backend: func(b driver.Backend) driver.Backend {
		return &historian{Backend: b, add: func(ctx context.Context, name, text string, keep int) error {
			list, _ := b.History(ctx, name)
			return b.AddHistory(ctx, name, text+strings.Repeat("\x00", 1+len(list)), keep)
		}, read: func(list []driver.Entry) []driver.Entry {
			for i := range list {
				list[i].Text = strings.TrimRight(list[i].Text, "\x00")
			}
			return list
		}}
	}},
	{name: "newest first", rule: "R20", backend: func(b driver.Backend) driver.Backend {
		return &historian{Backend: b, read: func(list []driver.Entry) []driver.Entry {
			slices.Reverse(list)
			return list
		}}
	}},
	{name: "names without case", rule: "R20", backend: func(b driver.Backend) driver.Backend {
		return &historian{Backend: b, name: strings.ToLower}
	}},
	{name: "no history of the empty name", rule: "R20", backend: func(b driver.Backend) driver.Backend {
		return &historian{Backend: b, add: func(ctx context.Context, name, text string, keep int) error {
			if name == "" {
				return nil
			}
			return b.AddHistory(ctx, name, text, keep)
		}}
	}},
	{name: "entries are cut", rule: "R20", backend: func(b driver.Backend) driver.Backend {
		return &historian{Backend: b, add: func(ctx context.Context, name, text string, keep int) error {
			return b.AddHistory(ctx, name, text[:min(len(text), 1000)], keep)
		}}
	}},
}

// historian is a store with other histories. A field that is nil changes nothing.
type historian struct {
	driver.Backend
	add  func(ctx context.Context, name, text string, keep int) error
	read func([]driver.Entry) []driver.Entry
	name func(string) string
}

func (h *historian) Watch(ctx context.Context, prefix string, changed func(string)) error {
	return driver.Watch(ctx, h.Backend, prefix, changed)
}

func (h *historian) AddHistory(ctx context.Context, name, text string, keep int) error {
	if err := driver.CheckEntry(name, text, keep); err != nil {
		return err
	}
	if h.name != nil {
		name = h.name(name)
	}
	if h.add != nil {
		return h.add(ctx, name, text, keep)
	}
	return h.Backend.AddHistory(ctx, name, text, keep)
}

func (h *historian) History(ctx context.Context, name string) ([]driver.Entry, error) {
	if h.name != nil {
		name = h.name(name)
	}
	list, err := h.Backend.History(ctx, name)
	if h.read != nil {
		list = h.read(list)
	}
	return list, err
}
