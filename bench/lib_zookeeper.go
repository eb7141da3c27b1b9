package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"
	"github.com/holdfast-lock/holdfast/zklock"
)

const goZooKeeperName = "go-zookeeper"

// zooKeeperLibraries lists those that run in this process; Curator does not.
func zooKeeperLibraries() []library { return []library{goZooKeeper, holdfastZooKeeper} }

var (
	goZooKeeper = library{name: goZooKeeperName, waits: true, open: func(ctx context.Context, at site) (client, error) {
		c, events, err := zk.Connect([]string{at.addr}, at.ttl, zk.WithLogInfo(false))
		if err != nil {
			return nil, err
		}
		for {
			select {
			case e := <-events:
				if e.State == zk.StateHasSession {
					return goZooKeeperClient{c, at.root}, nil
				}
			case <-ctx.Done():
				c.Close()
				return nil, fmt.Errorf("no session: %w", context.Cause(ctx))
			}
		}
	}}
	holdfastZooKeeper = library{name: oursZooKeeper, waits: true,
		open: func(ctx context.Context, at site) (client, error) {
			backend, err := zklock.New(zklock.Config{Servers: []string{at.addr}, Root: at.root + "/holdfast"})
			if err != nil {
				return nil, err
			}
			return openHoldfast(ctx, backend, at)
		}}
)

type goZooKeeperClient struct {
	c    *zk.Conn
	root string
}

func (c goZooKeeperClient) contender(name string) contender {
	return goZooKeeperContender{zk.NewLock(c.c, c.root+"/go-zookeeper/"+name, zk.WorldACL(zk.PermAll))}
}

func (c goZooKeeperClient) hold(context.Context, string) error { return errors.ErrUnsupported }

func (c goZooKeeperClient) close() error { c.c.Close(); return nil }

type goZooKeeperContender struct{ l *zk.Lock }

// lock ignores ctx: zk.Lock cannot be cancelled.
func (k goZooKeeperContender) lock(context.Context) error { return k.l.Lock() }

func (k goZooKeeperContender) unlock() error { return k.l.Unlock() }
