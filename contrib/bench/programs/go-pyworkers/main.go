// The application of pyworkers' worker and client for Go: `go-pyworkers serve`, or the program that enqueues (peer.py).
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	pyworkers "github.com/pyworkers/pyworkers/contrib/clients/go"

	"bench/work"
)

var ctx = context.Background()

func main() {
	// As for go-workers2: some connections more than jobs at once.
	rdb := redis.NewClient(&redis.Options{Addr: work.Address(), PoolSize: work.Workers() + 20})
	client, err := pyworkers.New(rdb, pyworkers.Config{})
	must(err)
	words := os.Args[1:]
	if words[0] == "serve" {
		serve(client)
		return
	}
	if words[0] == "push" && words[3] == "bulk" || words[0] == "compare" {
		count, err := strconv.Atoi(words[len(words)/2]) // push KIND COUNT bulk, compare COUNT
		must(err)
		if words[0] == "push" {
			bulk(client, words[1], count)
		} else {
			compare(client, rdb, count)
		}
		return
	}
	work.Main(words, func(kind string, value any, at time.Time) error {
		wanted := job(kind, value)
		wanted.At = at
		_, err := client.Enqueue(ctx, wanted)
		return err
	})
}

func serve(client *pyworkers.Client) {
	work.Open()
	level, to := slog.LevelWarn, os.Stderr
	if work.LineLog != "" {
		file, err := os.OpenFile(work.LineLog, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		must(err)
		level, to = slog.LevelInfo, file
	}
	until, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer stop()
	must(pyworkers.Serve(until, client, pyworkers.ServeOptions{
		Concurrency: work.Workers(),
		Logger:      slog.New(slog.NewJSONHandler(to, &slog.HandlerOptions{Level: level})),
	}, pyworkers.HandleFunc(work.Queue, "Bench", run)))
}

type args struct {
	Kind  string
	Value json.RawMessage
}

func run(_ context.Context, in args) (struct{}, error) {
	work.Run(in.Kind, func() int64 {
		nanoseconds, err := strconv.ParseInt(string(in.Value), 10, 64)
		must(err)
		return nanoseconds
	})
	return struct{}{}, nil
}

func job(kind string, value any) pyworkers.Job {
	return pyworkers.Job{
		Queue: work.Queue, Class: "Bench", Args: []any{kind, value}, Options: pyworkers.Options{Retry: pyworkers.Yes},
	}
}

func bulk(client *pyworkers.Client, kind string, count int) {
	started := time.Now()
	var value any = 0
	if kind == "blob" {
		value = strings.Repeat("x", 1_000_000)
	}
	_, err := client.EnqueueMany(ctx, slices.Repeat([]pyworkers.Job{job(kind, value)}, count))
	must(err)
	fmt.Printf("{\"seconds\": %g}\n", time.Since(started).Seconds())
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
