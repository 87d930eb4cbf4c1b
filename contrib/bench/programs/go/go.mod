module bench

go 1.22

require (
	github.com/digitalocean/go-workers2 v0.10.4
	github.com/jrallison/go-workers v0.0.0-20180112190529-dbf81d0b75bb
)

require (
	github.com/bitly/go-simplejson v0.5.0 // indirect
	github.com/cespare/xxhash/v2 v2.1.1 // indirect
	github.com/dgryski/go-rendezvous v0.0.0-20200823014737-9f7001d12a5f // indirect
	github.com/garyburd/redigo v0.0.0-20150301180006-535138d7bcd7 // indirect
	github.com/go-redis/redis/v8 v8.4.4 // indirect
	github.com/google/uuid v1.1.4 // indirect
	go.opentelemetry.io/otel v0.15.0 // indirect
)
