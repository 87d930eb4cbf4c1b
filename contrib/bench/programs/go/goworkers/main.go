// The application of go-workers: `goworkers serve`, or the program that enqueues (peer.py).
package main

import (
	"log"
	"os"
	"strconv"
	"time"

	"github.com/jrallison/go-workers"

	"bench/work"
)

func main() {
	workers.Configure(map[string]string{
		"server":  work.Address(),
		"process": strconv.Itoa(os.Getpid()),
		// One connection each for fetching and acknowledging, and some for the rest.
		"pool":          strconv.Itoa(work.Workers() + 20),
		"poll_interval": "1",
	})
	if os.Args[1] == "serve" {
		serve()
	} else {
		work.Main(os.Args[1:], produce)
	}
}

func serve() {
	work.Open()
	setUpLog()
	workers.Process(work.Queue, run, work.Workers())
	workers.Run()
}

func setUpLog() {
	if work.LineLog == "" {
		workers.Middleware = workers.NewMiddleware(&workers.MiddlewareRetry{}, &workers.MiddlewareStats{})
		return
	}
	file, err := os.OpenFile(work.LineLog, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		panic(err)
	}
	workers.Logger = log.New(file, "workers: ", log.Ldate|log.Lmicroseconds)
}

func run(message *workers.Msg) {
	work.Run(message.Args().GetIndex(0).MustString(), func() int64 { return message.Args().GetIndex(1).MustInt64() })
}

func produce(kind string, value any, at time.Time) error {
	options := workers.EnqueueOptions{Retry: true}
	if !at.IsZero() {
		options.At = float64(at.UnixNano()) / workers.NanoSecondPrecision
	}
	_, err := workers.EnqueueWithOptions(work.Queue, "Bench", []any{kind, value}, options)
	return err
}
