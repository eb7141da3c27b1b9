package zklock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/doctor"
	"github.com/holdfast-lock/holdfast/internal/zk"
)

// manyFolders bounds for how many folders below the root ACLs are read.
const manyFolders = 200

const permissions = "zookeeper.permissions"

// checkACLs compares the ACLs of the root and of the folders in it, which others may have created,
// with those that the Config asks for.
func checkACLs(ctx context.Context, f *doctor.Findings, l *link) error {
	root := l.b.root
	if root == "" {
		root = "/"
	}
	names, _, err := l.Children(ctx, root)
	switch {
	case errors.Is(err, zk.ErrNoNode):
		f.Fine(permissions, "%s does not exist; clients will create it with the permissions that the URL asks for", root)
		return nil
	case errors.Is(err, zk.ErrNoAuth):
	case err != nil:
		return err
	}
	slices.Sort(names)
	paths := []string{root}
	for _, name := range names[:min(len(names), manyFolders)] {
		if name != sealNode && root+name != "/zookeeper" { // ZooKeeper's own
			paths = append(paths, l.b.root+"/"+name)
		}
	}
	restricted := l.b.worldPerms()&changes == 0
	var open, others, unlike, hidden []string
	for _, path := range paths {
		acl, err := l.ACL(ctx, path)
		switch {
		case errors.Is(err, zk.ErrNoNode): // somebody deleted it in the meantime
		case errors.Is(err, zk.ErrNoAuth):
			hidden = append(hidden, path)
		case err != nil:
			return err
		default:
			world, named, own := l.b.rights(acl)
			text := path + " (" + describe(acl) + ")"
			switch {
			case restricted && world&changes != 0:
				open = append(open, text)
			case restricted && named != 0:
				others = append(others, text)
			case restricted && (world != l.b.worldPerms() && world != 0 || own != zk.PermAll), !restricted &&
				world != zk.PermAll:
				unlike = append(unlike, text)
			}
		}
	}
	asked := describe(l.b.acl)
	list := func(paths []string) string {
		text := strings.Join(paths[:min(len(paths), 3)], ", ")
		if n := len(paths) - 3; n > 0 {
			text += fmt.Sprintf(" and %d more", n)
		}
		return text
	}
	const change = "delete them while nobody uses them: clients create them again; or in zkCli.sh: addauth digest USER:PASSWORD and setAcl for each (docs/zookeeper.md)"
	switch {
	case len(open) > 0:
		f.Add(driver.Finding{Code: permissions, Severity: driver.Endangers,
			Found: "everybody may change " + list(open) + ", where the URL asks for " + asked,
			Why:   "everybody who reaches the servers may delete nodes in such a folder, which ends locks, or create folders there that others cannot use", Do: change})
	case len(hidden) > 0:
		f.Add(driver.Finding{Code: permissions, Severity: driver.Unclear, MayEndanger: restricted,
			Found: "who may change " + list(hidden) + " is not known: the servers do not show it to this user",
			Why:   "somebody else owns them, who may end locks there; and this user may be unable to lock",
			Do:    "use another root, or the user and password of its owner. Else " + change})
	case len(others) > 0:
		f.Add(driver.Finding{Code: permissions, Severity: driver.Unclear,
			Found: "others have rights to " + list(others) + ", where the URL asks for " + asked,
			Why:   "these users may change the folder, and so end locks there. Holdfast cannot know who they are",
			Do:    "if they are not your operators: " + change})
	case len(unlike) > 0:
		f.Add(driver.Finding{Code: permissions, Severity: driver.Slows,
			Found: "the permissions of " + list(unlike) + " are not those that the URL asks for, which are " + asked,
			Why:   "the servers may refuse requests there, or let everybody read them; the nodes in such a folder have the permissions of the URL",
			Do:    "use the same acl=, user and password in the URLs of all clients. Or " + change})
	default:
		f.Fine(permissions, "%s and %d folders in it have the permissions that the URL asks for: %s", root, len(paths)-1,
			asked)
	}
	return nil
}

// changes are the permissions that allow to end or block other clients' locks.
const changes = zk.PermWrite | zk.PermCreate | zk.PermDelete | zk.PermAdmin

// worldPerms returns what everybody may do with nodes that b creates.
func (b *Backend) worldPerms() (perms int32) {
	for _, a := range b.acl {
		if a.Scheme == "world" {
			perms |= a.Perms
		}
	}
	return perms
}

// rights returns what an ACL permits to everybody, to other named users, and to b's user.
func (b *Backend) rights(acl []zk.ACL) (world, named, own int32) {
	me := zk.ACL{}
	for _, a := range b.acl {
		if a.Scheme == "digest" {
			me = a
		}
	}
	for _, a := range acl {
		switch {
		case a.Scheme == "world":
			world |= a.Perms
		case a.Scheme == me.Scheme && a.ID == me.ID:
			own |= a.Perms
		default:
			named |= a.Perms
		}
	}
	return world, named, own | world
}

// describe shows an ACL as zkCli.sh does, without hashes of passwords.
func describe(acl []zk.ACL) string {
	var all []string
	for _, a := range acl {
		id := a.ID
		if a.Scheme == "digest" {
			id, _, _ = strings.Cut(id, ":")
		}
		perms := ""
		for i, letter := range "rwcda" {
			if a.Perms&(1<<i) != 0 {
				perms += string(letter)
			}
		}
		all = append(all, a.Scheme+":"+id+":"+perms)
	}
	return strings.Join(all, ",")
}
