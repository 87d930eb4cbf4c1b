// Command worker archives the receipts that Python wrote.
package main

import (
	"fmt"
	"log"
	"os"
	"time"

	workers "github.com/digitalocean/go-workers2"
	"github.com/go-redis/redis/v8"
)

func main() {
	where, err := redis.ParseURL(os.Getenv("REDIS_URL"))
	if err != nil {
		log.Fatal(err)
	}
	options := workers.Options{
		// Names the list of the jobs in progress. It must be this process's own, and the same at its next start,
		// for then it goes on with what it had when it was killed.
		ProcessID: "archive-1",
		// Between two looks at the scheduled jobs and retries. A stop waits for it, too; the default is 15 s.
		PollInterval: time.Second,
		Logger:       log.New(os.Stderr, "", log.LstdFlags),
	}
	manager, err := workers.NewManagerWithRedisClient(options, redis.NewClient(where))
	if err != nil {
		log.Fatal(err)
	}
	manager.AddWorker("archive", 2, archive) // a queue, not a class: the class of the job is not looked at
	manager.Run()
}

func archive(message *workers.Msg) error {
	order, err := message.Args().GetIndex(0).Int()
	if err != nil {
		return err // the job goes to the sorted set `goretry`, and runs again
	}
	fmt.Printf("archived order %d: %s\n", order, message.Args().GetIndex(1).MustString())
	return nil
}
