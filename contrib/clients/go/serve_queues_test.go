package pyworkers_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pyworkers "github.com/pyworkers/pyworkers/contrib/clients/go"
)

// enqueueAll enqueues jobs of a class, each with its number.
func enqueueAll(t *testing.T, client *pyworkers.Client, queue, class string, number int) {
	t.Helper()
	jobs := make([]pyworkers.Job, number)
	for i := range jobs {
		jobs[i] = pyworkers.Job{Queue: queue, Class: class, Args: []any{i}}
	}
	if _, err := client.EnqueueMany(t.Context(), jobs); err != nil {
		t.Fatal(err)
	}
}

func TestLimitsHoldOverAllWorkers(t *testing.T) {
	rdb, client := connect(t)
	for name, rules := range map[string]struct {
		limits []pyworkers.Limit
		queues pyworkers.QueueOptions
	}{
		"of a job":   {limits: []pyworkers.Limit{{Name: "two", Concurrency: 2, By: func(args pyworkers.Args) string { return args.Text(1) }}}},
		"of a queue": {queues: pyworkers.QueueOptions{MaxRunning: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			name := queue(t)
			var running, most, ended atomic.Int64
			nap := pyworkers.HandleFunc(name, "nap", func(context.Context, pyworkers.Args) (any, error) {
				most.Store(max(most.Load(), running.Add(1)))
				time.Sleep(5 * time.Millisecond)
				running.Add(-1)
				ended.Add(1)
				return nil, nil
			}).With(pyworkers.HandlerOptions{Limits: rules.limits})
			enqueueAll(t, client, name, "nap", 20)
			var stops []func() error
			for range 2 {
				options := pyworkers.ServeOptions{Concurrency: 4, Queues: map[string]pyworkers.QueueOptions{name: rules.queues}}
				stops = append(stops, serve(t, client, options, nap))
			}
			eventually(t, "all jobs have ended", func() bool { return ended.Load() == 20 })
			if most.Load() != 2 {
				t.Errorf("%d ran at once", most.Load())
			}
			for _, stop := range stops {
				if err := stop(); err != nil {
					t.Error(err)
				}
			}
			if held := rdb.ZCard(t.Context(), "pyworkers:limit:two:").Val(); held != 0 {
				t.Errorf("%d slots are still held", held)
			}
		})
	}
}

func TestRatesHold(t *testing.T) {
	_, client := connect(t)
	for name, rules := range map[string]struct {
		limits []pyworkers.Limit
		queues pyworkers.QueueOptions
	}{
		"of a job":   {limits: []pyworkers.Limit{{Name: "rate", Rate: 3, Per: time.Second}}},
		"of a queue": {queues: pyworkers.QueueOptions{Rate: 3}},
	} {
		t.Run(name, func(t *testing.T) {
			name := queue(t)
			var mu sync.Mutex
			var starts []time.Time
			note := pyworkers.HandleFunc(name, "note", func(context.Context, int) (any, error) {
				mu.Lock()
				defer mu.Unlock()
				starts = append(starts, time.Now())
				return nil, nil
			}).With(pyworkers.HandlerOptions{Limits: rules.limits})
			enqueueAll(t, client, name, "note", 8)
			serve(t, client, pyworkers.ServeOptions{Concurrency: 2, Queues: map[string]pyworkers.QueueOptions{name: rules.queues}}, note)
			eventually(t, "all jobs have started", func() bool {
				mu.Lock()
				defer mu.Unlock()
				return len(starts) == 8
			})
			for i := 3; i < len(starts); i++ {
				if gap := starts[i].Sub(starts[i-3]); gap < time.Second {
					t.Errorf("4 jobs started in %v", gap)
				}
			}
		})
	}
}

func TestAnOrderedQueueKeepsItsOrder(t *testing.T) {
	rdb, client := connect(t)
	ctx, name := within(t, 60*time.Second), queue(t)
	var mu sync.Mutex
	var seen []int
	var fences []int64
	var running atomic.Int64
	book := pyworkers.HandleFunc(name, "book", func(ctx context.Context, i int) (any, error) {
		if running.Add(1) > 1 {
			t.Error("two jobs run at once")
		}
		defer running.Add(-1)
		mu.Lock()
		defer mu.Unlock()
		message := pyworkers.CurrentMessage(ctx)
		fences = append(fences, message.Fence)
		if i == 3 && message.Attempt == 0 {
			return nil, pyworkers.RetryIn(50*time.Millisecond, errors.New("once"))
		}
		seen = append(seen, i)
		return nil, nil
	})
	length := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(seen)
	}
	rules := pyworkers.ServeOptions{Queues: map[string]pyworkers.QueueOptions{name: {Ordered: true}}}
	enqueueAll(t, client, name, "book", 10)
	first := serve(t, client, rules, book)
	eventually(t, "ten jobs are booked", func() bool { return length() == 10 })
	serve(t, client, rules, book)
	active := rdb.HGet(ctx, "pyworkers:ordered:"+name, "identity").Val()
	if !slices.Contains(identities(t, rdb, name), active) {
		t.Errorf("the active server is %q", active)
	}
	if err := first(); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		if _, err := client.Enqueue(ctx, pyworkers.Job{Queue: name, Class: "book", Args: []any{10 + i}}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the other one goes on", func() bool { return length() == 15 })
	if !slices.IsSorted(seen) || fences[0] == 0 || !slices.IsSorted(fences) || fences[0] == fences[len(fences)-1] {
		t.Errorf("booked were %v with the tokens %v", seen, fences)
	}
	if features := rdb.HGet(ctx, rdb.HGet(ctx, "pyworkers:ordered:"+name, "identity").Val(), "features").Val(); !strings.Contains(features, "ordered") {
		t.Errorf("it is shown with %s", features)
	}
}
