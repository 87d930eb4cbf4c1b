// The application of go-workers2: `goworkers2 serve`, or the program that enqueues (peer.py).
package main

import (
	"io"
	"log"
	"os"
	"strconv"
	"time"

	workers "github.com/digitalocean/go-workers2"

	"bench/work"
)

func main() {
	options := workers.Options{
		ServerAddr: work.Address(),
		ProcessID:  strconv.Itoa(os.Getpid()),
		// One connection each for fetching and acknowledging, and some for the rest.
		PoolSize:     work.Workers() + 20,
		PollInterval: time.Second,
		Logger:       log.New(io.Discard, "", 0),
	}
	if os.Args[1] == "serve" {
		serve(options)
	} else {
		work.Main(os.Args[1:], producer(options))
	}
}

func serve(options workers.Options) {
	work.Open()
	middlewares := workers.NewMiddlewares(workers.RetryMiddleware, workers.StatsMiddleware)
	if work.LineLog != "" {
		file, err := os.OpenFile(work.LineLog, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		must(err)
		options.Logger = log.New(file, "go-workers2: ", log.Ldate|log.Lmicroseconds)
		middlewares = workers.DefaultMiddlewares()
	}
	manager, err := workers.NewManager(options)
	must(err)
	manager.AddWorker(work.Queue, work.Workers(), run, middlewares...)
	manager.Run()
}

func run(message *workers.Msg) error {
	work.Run(message.Args().GetIndex(0).MustString(), func() int64 { return message.Args().GetIndex(1).MustInt64() })
	return nil
}

func producer(options workers.Options) work.Producer {
	producer, err := workers.NewProducer(options)
	must(err)
	return func(kind string, value any, at time.Time) error {
		how := workers.EnqueueOptions{Retry: true}
		if !at.IsZero() {
			how.At = float64(at.UnixNano()) / workers.NanoSecondPrecision
		}
		_, err := producer.EnqueueWithOptions(work.Queue, "Bench", []any{kind, value}, how)
		return err
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
