module bench/go-pyworkers

go 1.26.0

require (
	bench v0.0.0
	github.com/digitalocean/go-workers2 v0.10.4
	github.com/pyworkers/pyworkers/contrib/clients/go v0.0.0
	github.com/redis/go-redis/v9 v9.23.0
)

require (
	github.com/bitly/go-simplejson v0.5.0 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/dgryski/go-rendezvous v0.0.0-20200823014737-9f7001d12a5f // indirect
	github.com/go-redis/redis/v8 v8.4.4 // indirect
	github.com/google/uuid v1.1.4 // indirect
	go.opentelemetry.io/otel v0.15.0 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
)

replace (
	bench => ../go
	github.com/pyworkers/pyworkers/contrib/clients/go => ../../../clients/go
)
