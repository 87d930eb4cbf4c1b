// Command service takes orders. Python writes the receipts: it enqueues one job for each.
package main

import (
	"fmt"
	"log"
	"os"

	workers "github.com/digitalocean/go-workers2"
	"github.com/go-redis/redis/v8"
)

func main() {
	where, err := redis.ParseURL(os.Getenv("REDIS_URL"))
	if err != nil {
		log.Fatal(err)
	}
	producer, err := workers.NewProducerWithRedisClient(workers.Options{ProcessID: "service"}, redis.NewClient(where))
	if err != nil {
		log.Fatal(err)
	}
	for order, email := range []string{"ada@example.org", "bob@example.org", "eve@example.org"} {
		// Without Retry the job would have the retries of its handler in tasks.py.
		options := workers.EnqueueOptions{Retry: true, RetryMax: 5}
		jid, err := producer.EnqueueWithOptions("receipts", "WriteReceipt", []interface{}{order + 1, email}, options)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("ordered %d as %s\n", order+1, jid)
	}
}
