package pyworkers_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	pyworkers "github.com/pyworkers/pyworkers/contrib/clients/go"
)

// The queue of contrib/clients/application.py.
const served = "clients"

// connect is a connection to the Redis that REDIS_URL names, and a client of it.
func connect(t testing.TB) (*redis.Client, *pyworkers.Client) {
	t.Helper()
	url := os.Getenv("REDIS_URL")
	if url == "" {
		t.Skip("needs a Redis and a server of contrib/clients/application.py: pytest tests/clients/test_go.py")
	}
	options, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewClient(options)
	client, err := pyworkers.FromEnv()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = client.Close(), rdb.Close() })
	return rdb, client
}

// queue is a queue of this test that no server serves.
func queue(t testing.TB) string {
	return fmt.Sprintf("%s-%08x", strings.ToLower(t.Name()), rand.Uint32())
}

func within(t testing.TB, limit time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

func TestPlainJobsArePushedInOrder(t *testing.T) {
	rdb, client := connect(t)
	ctx, name := t.Context(), queue(t)
	ids, err := client.EnqueueMany(ctx, []pyworkers.Job{
		{Queue: name, Class: "A", Args: []any{1}},
		{Queue: name, Class: "A", Args: []any{2}, Options: pyworkers.Options{In: time.Hour}},
		{Queue: name, Class: "A", Args: []any{3}},
	})
	if err != nil || len(ids) != 3 {
		t.Fatal(ids, err)
	}
	waiting := rdb.LRange(ctx, "queue:"+name, 0, -1).Val()
	if len(waiting) != 2 || !strings.Contains(waiting[0], ids[2]) || !strings.Contains(waiting[1], ids[0]) {
		t.Errorf("the queue has %q", waiting)
	}
	if !rdb.SIsMember(ctx, "queues", name).Val() {
		t.Error("the queue is not in queues")
	}
	due := rdb.ZRangeArgsWithScores(ctx, redis.ZRangeArgs{Key: "schedule", Start: 0, Stop: -1}).Val()
	at := slices.IndexFunc(due, func(z redis.Z) bool { return strings.Contains(z.Member.(string), ids[1]) })
	if at < 0 || time.Until(time.Unix(int64(due[at].Score), 0)).Round(time.Minute) != time.Hour {
		t.Errorf("the schedule has %v", due)
	}
}

func TestPythonRunsAJobAndReturnsItsValue(t *testing.T) {
	_, client := connect(t)
	ctx := within(t, 20*time.Second)
	id, err := client.Enqueue(ctx, pyworkers.Job{
		Queue: served, Class: "charge", Args: []any{7, "CHF"}, Options: pyworkers.Options{Track: time.Hour, In: time.Second},
	})
	if err != nil {
		t.Fatal(err)
	}
	if status, err := client.Status(ctx, id); err != nil || status.State != pyworkers.Scheduled || status.Queue != served {
		t.Errorf("the status is %+v (%v)", status, err)
	}
	var receipt struct {
		Order    int
		Currency string
		Paid     bool
	}
	for range 2 { // it waits, then it reads
		if err := client.Result(ctx, id, &receipt); err != nil || !receipt.Paid || receipt.Currency != "CHF" {
			t.Errorf("the result is %+v (%v)", receipt, err)
		}
	}
	if status, err := client.Status(ctx, id); err != nil || status.State != pyworkers.Done || status.FinishedAt.IsZero() {
		t.Errorf("the status is %+v (%v)", status, err)
	}
}

func TestSealedArgumentsAreOpenedByPython(t *testing.T) {
	rdb, client := connect(t)
	ctx := within(t, 20*time.Second)
	options := pyworkers.Options{Track: time.Hour, Encrypt: true, UniqueFor: time.Minute}
	id, err := client.Enqueue(ctx, pyworkers.Job{Queue: served, Class: "echo", Args: []any{"hidden é"}, Options: options})
	if err != nil {
		t.Fatal(err)
	}
	var shown []string
	if err := client.Result(ctx, id, &shown); err != nil || !slices.Equal(shown, []string{"hidden é"}) {
		t.Errorf("the result is %q (%v)", shown, err)
	}
	name := queue(t)
	if _, err := client.Enqueue(ctx, pyworkers.Job{Queue: name, Class: "echo", Args: []any{"hidden"}, Options: options}); err != nil {
		t.Fatal(err)
	}
	if raw := rdb.LIndex(ctx, "queue:"+name, 0).Val(); raw == "" || strings.Contains(raw, "hidden") {
		t.Errorf("the queue has %q", raw)
	}
}

func TestErrorsSayWhatIsWrong(t *testing.T) {
	rdb, client := connect(t)
	ctx, name := within(t, 20*time.Second), queue(t)
	job := func(options pyworkers.Options, args ...any) pyworkers.Job {
		return pyworkers.Job{Queue: name, Class: "A", Args: args, Options: options}
	}
	unique := pyworkers.Options{UniqueFor: time.Minute, OnDuplicate: pyworkers.Raise}
	first, err := client.Enqueue(ctx, job(unique))
	if err != nil {
		t.Fatal(err)
	}
	var duplicate *pyworkers.DuplicateError
	if _, err := client.Enqueue(ctx, job(unique)); !errors.As(err, &duplicate) || duplicate.ID != first {
		t.Errorf("a duplicate: %v", err)
	}
	unique.OnDuplicate = pyworkers.Skip
	if id, err := client.Enqueue(ctx, job(unique)); err != nil || id != first {
		t.Errorf("a skipped duplicate: %s %v", id, err)
	}
	var full *pyworkers.QueueFullError
	_, err = client.Enqueue(ctx, job(pyworkers.Options{MaxWaiting: 1, Wait: 20 * time.Millisecond}))
	if !errors.As(err, &full) || err.Error() != fmt.Sprintf("the queue %q is full: max_waiting is 1", name) {
		t.Errorf("a full queue: %v", err)
	}
	var failed *pyworkers.JobFailedError
	id, err := client.Enqueue(ctx, pyworkers.Job{Queue: served, Class: "fail", Args: []any{"no"}, Options: pyworkers.Options{Track: time.Hour}})
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Result(ctx, id, nil); !errors.As(err, &failed) || failed.State != pyworkers.Dead || failed.Class != "ValueError" {
		t.Errorf("a dead job: %v", err)
	}
	var untracked *pyworkers.UntrackedError
	if err := client.Result(ctx, "nowhere", nil); !errors.As(err, &untracked) {
		t.Errorf("a job that is not tracked: %v", err)
	}
	soon, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	id, err = client.Enqueue(ctx, job(pyworkers.Options{Track: time.Hour}))
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	if err := client.Result(soon, id, nil); !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) > time.Second {
		t.Errorf("a job that does not end: %v", err)
	}
	// All or none: nothing of these is in the queue.
	before := rdb.LLen(ctx, "queue:"+name).Val()
	var wrong *pyworkers.ArgumentError
	for _, bad := range []any{math.NaN(), "\xff", []any{map[string]any{"a": make(chan int)}}, []string{"\xff"}} {
		if _, err := client.EnqueueMany(ctx, []pyworkers.Job{job(pyworkers.Options{}), job(pyworkers.Options{}, bad)}); !errors.As(err, &wrong) ||
			!strings.HasPrefix(wrong.Field, "args[0]") {
			t.Errorf("%v: %v", bad, err)
		}
	}
	if after := rdb.LLen(ctx, "queue:"+name).Val(); after != before {
		t.Errorf("the queue has %d jobs, not %d", after, before)
	}
}

func TestRedisAway(t *testing.T) {
	client, err := pyworkers.New(redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DialerRetries: 1}), pyworkers.Config{})
	if err != nil {
		t.Fatal(err)
	}
	var lost *pyworkers.UnavailableError
	for _, options := range []pyworkers.Options{{}, {Track: time.Hour}} {
		if _, err := client.Enqueue(t.Context(), pyworkers.Job{Queue: "q", Class: "A", Options: options}); !errors.As(err, &lost) {
			t.Errorf("Redis is away: %v", err)
		}
	}
	if _, err := pyworkers.New(redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}}), pyworkers.Config{Namespace: "app:"}); err == nil {
		t.Error("a cluster without a hash tag")
	}
}
