package sqllock

import (
	"context"
	"database/sql"

	"github.com/holdfast-lock/holdfast/driver"
)

var _ driver.Neighbor = (*Server)(nil)

// Neighbors is an optional interface of a Dialect whose server has named locks of its own.
type Neighbors interface {
	// Neighbors is as for [driver.Neighbor]. It returns errors of the server as they are.
	Neighbors(ctx context.Context, db *sql.DB, name string) ([]string, error)
}

// Neighbors implements [driver.Neighbor]: MySQL and MariaDB have locks with names (GET_LOCK). In
// PostgreSQL nothing can be found: its advisory locks have numbers, which each program makes from
// names in its own way.
func (b *Server) Neighbors(ctx context.Context, name string) ([]string, error) {
	n, ok := b.d.(Neighbors)
	if err := driver.CheckName(name); err != nil || !ok {
		return nil, err
	}
	list, err := n.Neighbors(ctx, b.db, name)
	return list, b.fault(err)
}
