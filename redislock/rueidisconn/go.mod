module github.com/holdfast-lock/holdfast/redislock/rueidisconn

go 1.25.0

require (
	github.com/holdfast-lock/holdfast v0.1.0
	github.com/redis/rueidis v1.0.79
)

require golang.org/x/sys v0.47.0 // indirect
