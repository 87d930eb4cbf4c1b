// Command goworkers is go-workers (jrallison) as a producer and as a worker.
//
//	goworkers produce          commands on standard input, see peer.Command
//	goworkers work QUEUE...    two workers for each queue
package main

import (
	"encoding/json"
	"os"

	workers "github.com/jrallison/go-workers"

	"pyworkers.test/peers/peer"
)

func main() {
	workers.Logger = peer.Logger
	workers.Configure(map[string]string{
		"server":        os.Getenv("PEER_REDIS"),
		"process":       os.Getenv("PEER_PROCESS"),
		"namespace":     os.Getenv("PEER_NAMESPACE"),
		"pool":          "10",
		"poll_interval": "1",
	})
	if os.Args[1] == "produce" {
		peer.Serve(enqueue)
		return
	}
	for _, queue := range os.Args[2:] {
		workers.Process(queue, run, 2)
	}
	workers.Run()
}

func run(message *workers.Msg) {
	if err := peer.Run(message.OriginalJson()); err != nil {
		panic(err) // how a job of go-workers fails
	}
}

func enqueue(c peer.Command) (string, error) {
	switch c.Call {
	case "EnqueueIn":
		return workers.EnqueueIn(c.Queue, c.Class, c.In, c.Args)
	case "EnqueueAt":
		return workers.EnqueueAt(c.Queue, c.Class, c.Time(), c.Args)
	case "EnqueueWithOptions":
		var options workers.EnqueueOptions
		if err := json.Unmarshal(c.Options, &options); err != nil {
			return "", err
		}
		return workers.EnqueueWithOptions(c.Queue, c.Class, c.Args, options)
	default:
		return workers.Enqueue(c.Queue, c.Class, c.Args)
	}
}
