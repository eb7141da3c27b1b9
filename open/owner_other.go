//go:build !unix

package open

// ownFolder does nothing: these systems have no owner to compare.
func ownFolder(string) error { return nil }

// mayCreate does nothing: these systems have no sudo.
func mayCreate(string) error { return nil }

// foreignFile is for systems whose files have an owner.
func foreignFile(string) string { return "" }
