// Command go-client measures how fast Go enqueues (contrib/bench/enqueue_go.py): its client and go-workers2 in turn, and
// in bulk against pipelined LPUSH of the same bytes. It prints jobs a second of each, for each round.
package main

import (
	"context"
	"encoding/json"
	"io"
	"log"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"

	workers "github.com/digitalocean/go-workers2"
	"github.com/redis/go-redis/v9"

	pyworkers "github.com/pyworkers/pyworkers/contrib/clients/go"
)

const (
	queue  = "bench"
	inBulk = 20 // times as many jobs in bulk
	packet = 1000
)

var (
	ctx  = context.Background()
	args = []any{7, "user@example.org"}
)

func main() {
	address := "127.0.0.1:" + os.Getenv("BENCH_PORT")
	rounds, count := number(os.Args[1]), number(os.Args[2])
	rdb := redis.NewClient(&redis.Options{Addr: address})
	client, err := pyworkers.New(rdb, pyworkers.Config{})
	must(err)
	peer, err := workers.NewProducer(workers.Options{
		ServerAddr: address, ProcessID: "bench", PoolSize: 10, Logger: log.New(io.Discard, "", 0),
	})
	must(err)
	job := pyworkers.Job{Queue: queue, Class: "Bench", Args: args, Options: pyworkers.Options{Retry: pyworkers.Yes}}
	asked := job
	asked.Track, asked.UniqueFor = time.Hour, time.Hour

	many := slices.Repeat([]pyworkers.Job{job}, max(packet, count*inBulk))

	measures := []struct {
		name string
		jobs int
		run  func(count int)
	}{
		{"go-workers2", count, func(count int) {
			for range count {
				_, err := peer.EnqueueWithOptions(queue, "Bench", args, workers.EnqueueOptions{Retry: true})
				must(err)
			}
		}},
		{"plain", count, func(count int) {
			for range count {
				_, err := client.Enqueue(ctx, job)
				must(err)
			}
		}},
		{"unique and tracked", count, func(count int) {
			for i := range count {
				asked.Args = append(slices.Clone(args), i)
				_, err := client.Enqueue(ctx, asked)
				must(err)
			}
		}},
		{"in bulk", count * inBulk, func(count int) {
			_, err := client.EnqueueMany(ctx, many[:count])
			must(err)
		}},
		{"pipelined LPUSH", count * inBulk, nil},
	}
	measures[4].run = func(count int) {
		payload := sample(client, rdb, job)
		for range count / packet {
			_, err := rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
				for range packet {
					pipe.LPush(ctx, "queue:"+queue, payload)
				}
				return nil
			})
			must(err)
		}
	}
	for round := range rounds {
		// The speed of a machine changes within seconds: in turn, and in the opposite order.
		if slices.Reverse(measures); round == 0 {
			slices.Reverse(measures)
		}
		rows := map[string]row{}
		for _, measure := range measures {
			must(rdb.FlushAll(ctx).Err())
			measure.run(packet) // warm
			must(rdb.FlushAll(ctx).Err())
			started, before := time.Now(), cpu(rdb)
			measure.run(measure.jobs)
			jobs := float64(measure.jobs)
			rows[measure.name] = row{jobs / time.Since(started).Seconds(), (cpu(rdb) - before) * 1e6 / jobs}
			if waiting := rdb.LLen(ctx, "queue:"+queue).Val(); waiting < int64(measure.jobs) {
				log.Fatalf("%s: %d jobs, not %d", measure.name, waiting, measure.jobs)
			}
		}
		must(json.NewEncoder(os.Stdout).Encode(rows))
	}
}

type row struct {
	JobsPerS float64 `json:"jobs_s"`
	CPU      float64 `json:"cpu_us"`
}

// cpu are the CPU seconds of this process and of Redis: on a busy machine they are steadier than jobs a second.
func cpu(rdb *redis.Client) float64 {
	var own syscall.Rusage
	must(syscall.Getrusage(syscall.RUSAGE_SELF, &own))
	found := float64(own.Utime.Nano()+own.Stime.Nano()) / 1e9
	info := rdb.InfoMap(ctx, "cpu").Item("CPU", "used_cpu_user")
	more := rdb.InfoMap(ctx, "cpu").Item("CPU", "used_cpu_sys")
	for _, text := range []string{info, more} {
		number, err := strconv.ParseFloat(text, 64)
		must(err)
		found += number
	}
	return found
}

// sample is a job as the client pushes it.
func sample(client *pyworkers.Client, rdb *redis.Client, job pyworkers.Job) string {
	_, err := client.Enqueue(ctx, job)
	must(err)
	payload, err := rdb.LIndex(ctx, "queue:"+queue, 0).Result()
	must(err)
	return payload
}

func number(word string) int {
	value, err := strconv.Atoi(word)
	must(err)
	return value
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
