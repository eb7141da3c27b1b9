package zklock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/doctor"
	"github.com/holdfast-lock/holdfast/zklock/internal/zk"
)

// manyFolders bounds how many folders below the root are asked for their ACLs.
const manyFolders = 200

const permissions = "zookeeper.permissions"

// lookAtACLs is about the ACLs of the root and of the folders in it, which others may have made, against those that the
// Config asks for.
func lookAtACLs(ctx context.Context, f *doctor.Findings, l *link) error {
	root := l.b.root
	if root == "" {
		root = "/"
	}
	names, _, err := l.Children(ctx, root)
	switch {
	case errors.Is(err, zk.ErrNoNode):
		f.Fine(permissions, "%s is not there yet; it will be made with the permissions that the URL asks for", root)
		return nil
	case errors.Is(err, zk.ErrNoAuth):
	case err != nil:
		return err
	}
	slices.Sort(names)
	paths := []string{root}
	for _, name := range names[:min(len(names), manyFolders)] {
		if name != sealNode && root+name != "/zookeeper" { // the servers' own
			paths = append(paths, l.b.root+"/"+name)
		}
	}
	restricted := l.b.strangers()&changes == 0
	var open, others, unlike, hidden []string
	for _, path := range paths {
		acl, err := l.ACL(ctx, path)
		switch {
		case errors.Is(err, zk.ErrNoNode): // it has gone meanwhile
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
			case restricted && (world != l.b.strangers() && world != 0 || own != zk.PermAll), !restricted && world != zk.PermAll:
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
	const change = "while nobody uses them, delete them, and clients make them anew; or zkCli.sh: addauth digest USER:PASSWORD and setAcl for each (docs/zookeeper.md)"
	switch {
	case len(open) > 0:
		f.Add(driver.Finding{Code: permissions, Severity: driver.Endangers, Found: "everybody may change " + list(open) + ", where the URL asks for " + asked,
			Why: "whoever reaches the servers may delete what is in such a folder, or make folders there that others cannot use, and so end locks", Do: change})
	case len(hidden) > 0:
		f.Add(driver.Finding{Code: permissions, Severity: driver.Unclear, MayEndanger: restricted,
			Found: "who may change " + list(hidden) + " could not be found out: the servers do not tell this user",
			Why:   "they belong to somebody else, who may end locks there; and this user may have no locks", Do: "use another root, or the user and password of those who made it. Else " + change})
	case len(others) > 0:
		f.Add(driver.Finding{Code: permissions, Severity: driver.Unclear, Found: "others have rights to " + list(others) + ", where the URL asks for " + asked,
			Why: "whoever may change a folder may end locks there. Who they are cannot be told", Do: "if they are not operators of yours: " + change})
	case len(unlike) > 0:
		f.Add(driver.Finding{Code: permissions, Severity: driver.Slows, Found: "the permissions of " + list(unlike) + " are not those that the URL asks for, which are " + asked,
			Why: "requests may be refused there, or may be seen by everybody; and the nodes in such a folder permit what the URL says",
			Do:  "the same acl= in the URL of all, with their user and password. Or " + change})
	default:
		f.Fine(permissions, "of %s and %d folders in it the permissions are those that the URL asks for: %s", root, len(paths)-1, asked)
	}
	return nil
}

// changes are the permissions with which one can end others' locks, or get in their way.
const changes = zk.PermWrite | zk.PermCreate | zk.PermDelete | zk.PermAdmin

// strangers is what everybody may do with nodes that b makes.
func (b *Backend) strangers() (perms int32) {
	for _, a := range b.acl {
		if a.Scheme == "world" {
			perms |= a.Perms
		}
	}
	return perms
}

// rights sorts out whom an ACL permits what: everybody, others by name, and b's user.
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
