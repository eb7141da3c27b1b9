module github.com/holdfast-lock/holdfast/interop

go 1.26.0

require (
	github.com/go-zookeeper/zk v1.0.4
	github.com/holdfast-lock/holdfast v0.1.0
	go.uber.org/goleak v1.3.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/redis/rueidis v1.0.79 // indirect
	go.uber.org/atomic v1.12.0 // indirect
)

require (
	github.com/holdfast-lock/holdfast/redislock/rueidisconn v0.1.0
	github.com/redis/go-redis/v9 v9.23.0
	golang.org/x/sys v0.49.0 // indirect
)
