module github.com/holdfast-lock/holdfast/prometheus

go 1.26.0

require (
	github.com/holdfast-lock/holdfast v0.1.0
	github.com/prometheus/client_golang v1.25.0
	github.com/prometheus/common v0.73.1
	go.uber.org/goleak v1.3.0
)
