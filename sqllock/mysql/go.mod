module github.com/holdfast-lock/holdfast/sqllock/mysql

go 1.25.0

require (
	github.com/go-sql-driver/mysql v1.10.1
	github.com/holdfast-lock/holdfast v0.1.0
	go.uber.org/goleak v1.3.0
)

require (
	filippo.io/edwards25519 v1.2.0 // indirect
	golang.org/x/sys v0.47.0 // indirect
	pgregory.net/rapid v1.3.0 // indirect
)
