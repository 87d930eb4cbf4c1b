// Command goworkers2 is go-workers2 (digitalocean) as a producer and as a worker.
//
//	goworkers2 produce          commands on standard input, see peer.Command
//	goworkers2 work QUEUE...    two workers for each queue
package main

import (
	"encoding/json"
	"os"
	"time"

	workers "github.com/digitalocean/go-workers2"

	"pyworkers.test/peers/peer"
)

func main() {
	manager, err := workers.NewManager(workers.Options{
		ServerAddr:   os.Getenv("PEER_REDIS"),
		ProcessID:    os.Getenv("PEER_PROCESS"),
		Namespace:    os.Getenv("PEER_NAMESPACE"),
		PoolSize:     10,
		PollInterval: time.Second,
		Logger:       peer.Logger,
	})
	if err != nil {
		peer.Logger.Fatal(err)
	}
	if os.Args[1] == "produce" {
		producer := manager.Producer()
		peer.Serve(func(c peer.Command) (string, error) { return enqueue(producer, c) })
		return
	}
	for _, queue := range os.Args[2:] {
		manager.AddWorker(queue, 2, func(message *workers.Msg) error { return peer.Run(message.OriginalJson()) })
	}
	manager.Run()
}

func enqueue(producer *workers.Producer, c peer.Command) (string, error) {
	switch c.Call {
	case "EnqueueIn":
		return producer.EnqueueIn(c.Queue, c.Class, c.In, c.Args)
	case "EnqueueAt":
		return producer.EnqueueAt(c.Queue, c.Class, c.Time(), c.Args)
	case "EnqueueWithOptions":
		var options workers.EnqueueOptions
		if err := json.Unmarshal(c.Options, &options); err != nil {
			return "", err
		}
		return producer.EnqueueWithOptions(c.Queue, c.Class, c.Args, options)
	default:
		return producer.Enqueue(c.Queue, c.Class, c.Args)
	}
}
