package zk

import "context"

// WatchTree calls f with the path of each node that is created, changed or deleted at or below
// path, until gone is closed: the watch ends with the connection. f is called on the goroutine that
// reads from the connection, and must not wait. A session has one such watch. ErrUnimplemented:
// servers before 3.6 have none.
func (s *Session) WatchTree(ctx context.Context, path string, f func(path string)) (gone <-chan struct{}, err error) {
	s.mu.Lock()
	s.tree = f
	at := s.conn
	s.mu.Unlock()
	const recursive = 1
	c := pathCall(opAddWatch, path, 4)
	c.e.int32(recursive)
	if _, err := s.do(ctx, "watch all below", path, c); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if at == nil || s.conn != at { // the answer may have come on a connection that has ended
		return nil, &opError{"watch all below", path, ErrConnectionLoss}
	}
	return at.dead, nil
}
