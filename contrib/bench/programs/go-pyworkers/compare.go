package main

import (
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

	"bench/work"
)

const (
	inBulk = 20 // times as many jobs in bulk
	packet = 1000
)

// compare prints how fast the client, go-workers2 and pipelined LPUSH of the same bytes are: jobs a second, and
// microseconds of CPU of a job, with Redis; the medians of several rounds.
func compare(client *pyworkers.Client, rdb *redis.Client, count int) {
	peer, err := workers.NewProducer(workers.Options{
		ServerAddr: work.Address(), ProcessID: "bench", PoolSize: 10, Logger: log.New(io.Discard, "", 0),
	})
	must(err)
	args := []any{7, "user@example.org"}
	plain := job("", nil)
	plain.Args = args
	asked := plain
	asked.Track, asked.UniqueFor = time.Hour, time.Hour
	many := slices.Repeat([]pyworkers.Job{plain}, max(packet, count*inBulk))

	measures := []struct {
		name string
		jobs int
		run  func(count int)
	}{
		{"other", count, func(count int) {
			for range count {
				_, err := peer.EnqueueWithOptions(work.Queue, "Bench", args, workers.EnqueueOptions{Retry: true})
				must(err)
			}
		}},
		{"plain", count, func(count int) {
			for range count {
				_, err := client.Enqueue(ctx, plain)
				must(err)
			}
		}},
		{"unique", count, func(count int) {
			for i := range count {
				asked.Args = append(slices.Clone(args), i)
				_, err := client.Enqueue(ctx, asked)
				must(err)
			}
		}},
		{"bulk", count * inBulk, func(count int) {
			_, err := client.EnqueueMany(ctx, many[:count])
			must(err)
		}},
		{"lpush", count * inBulk, func(count int) { pipelined(rdb, sample(client, rdb, plain), count) }},
	}
	took, used := map[string][]float64{}, map[string][]float64{}
	const rounds = 6
	for range rounds {
		for _, measure := range measures {
			must(rdb.FlushAll(ctx).Err())
			measure.run(packet) // warm
			must(rdb.FlushAll(ctx).Err())
			started, before := time.Now(), cpu(rdb)
			measure.run(measure.jobs)
			took[measure.name] = append(took[measure.name], time.Since(started).Seconds()/float64(measure.jobs))
			used[measure.name] = append(used[measure.name], (cpu(rdb)-before)/float64(measure.jobs))
			if waiting := rdb.LLen(ctx, "queue:"+work.Queue).Val(); waiting < int64(measure.jobs) {
				log.Fatalf("%s: %d jobs, not %d", measure.name, waiting, measure.jobs)
			}
		}
		// The speed of a machine changes within seconds: in turn, and in the opposite order.
		slices.Reverse(measures)
	}
	numbers := map[string]float64{}
	for name := range took {
		numbers[name+"_s"], numbers[name+"_us"] = 1/median(took[name]), median(used[name])*1e6
	}
	must(json.NewEncoder(os.Stdout).Encode(numbers))
}

func median(numbers []float64) float64 {
	slices.Sort(numbers)
	middle := len(numbers) / 2
	return (numbers[middle] + numbers[len(numbers)-1-middle]) / 2
}

func pipelined(rdb *redis.Client, payload string, count int) {
	for range count / packet {
		_, err := rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for range packet {
				pipe.LPush(ctx, "queue:"+work.Queue, payload)
			}
			return nil
		})
		must(err)
	}
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
func sample(client *pyworkers.Client, rdb *redis.Client, wanted pyworkers.Job) string {
	_, err := client.Enqueue(ctx, wanted)
	must(err)
	payload, err := rdb.LIndex(ctx, "queue:"+work.Queue, 0).Result()
	must(err)
	return payload
}
