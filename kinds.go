package holdfast

import (
	"fmt"
	"strings"

	"github.com/holdfast-lock/holdfast/driver"
)

// keeps returns an ErrInvalid if the store does not keep what r asks for.
func (c *Client) keeps(r *driver.Request, readWrite bool) error {
	switch k := c.backend.Kinds(); {
	case r.Mode == driver.Permits && !k.Semaphores:
		return c.lacks("semaphores")
	case readWrite && !k.Shared:
		return c.lacks("read/write locks")
	case r.MinHold > 0 && !k.MinHold:
		return c.lacks("minimum holds")
	}
	return nil
}

// lacks is the refusal of what the store does not keep.
func (c *Client) lacks(what string) error {
	has := []string{"mutexes"}
	k := c.backend.Kinds()
	for _, x := range []struct {
		has  bool
		name string
	}{{k.Shared, "read/write locks"}, {k.Semaphores, "semaphores"}, {k.Latches, "latches"}, {k.MinHold, "minimum holds"}} {
		if x.has {
			has = append(has, x.name)
		}
	}
	store := c.backend.Name()
	if k.Setting != "" {
		store += " with " + k.Setting
	}
	return fmt.Errorf("%w use: this store (%s) keeps no %s; it keeps %s", ErrInvalid, store, what, strings.Join(has, ", "))
}
