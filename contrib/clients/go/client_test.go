package pyworkers_test

import (
	"context"
	"encoding/json"
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

func TestJobsOfAllSizesKeepTheirBytes(t *testing.T) {
	rdb, client := connect(t)
	ctx, name := t.Context(), queue(t)
	jobs := make([]pyworkers.Job, 300)
	for i := range jobs {
		jobs[i] = pyworkers.Job{Queue: name, Class: "A", Args: []any{strings.Repeat("x", i*i%1009), i}}
	}
	if _, err := client.EnqueueMany(ctx, jobs); err != nil {
		t.Fatal(err)
	}
	waiting := rdb.LRange(ctx, "queue:"+name, 0, -1).Val()
	slices.Reverse(waiting)
	for i, raw := range waiting {
		args := fmt.Sprintf(`"args":["%s",%d],"jid":"`, jobs[i].Args...)
		if !strings.Contains(raw, args) || !json.Valid([]byte(raw)) {
			t.Errorf("job %d is %s", i, raw)
		}
	}
	if len(waiting) != len(jobs) {
		t.Errorf("the queue has %d jobs", len(waiting))
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
	if batch, err := client.EnqueueBatch(ctx, pyworkers.BatchOptions{ID: name}, job(pyworkers.Options{MaxWaiting: 1})); err == nil || batch != nil {
		t.Errorf("a batch for a full queue: %v (%v)", batch, err)
	}
	if _, err := client.Batch(name).Status(ctx); err == nil {
		t.Error("a batch whose first jobs were refused is there")
	}
	roomier := time.AfterFunc(50*time.Millisecond, func() { rdb.Del(ctx, "queue:"+name) })
	defer roomier.Stop()
	if _, err = client.Enqueue(ctx, job(pyworkers.Options{MaxWaiting: 1, Wait: 20 * time.Second})); err != nil {
		t.Errorf("a push that waits for room: %v", err)
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

// quiet is a logger of go-redis.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

func TestAnotherWire(t *testing.T) {
	rdb, _ := connect(t)
	client, err := pyworkers.New(rdb, pyworkers.Config{Namespace: "{wire}:"})
	if err != nil {
		t.Fatal(err)
	}
	rdb.ZAdd(t.Context(), "{wire}:pyworkers:wire", redis.Z{Member: "99", Score: 1})
	var wire *pyworkers.WireError
	job := pyworkers.Job{Queue: "q", Class: "A", Options: pyworkers.Options{Track: time.Hour}}
	for _, refused := range []pyworkers.Job{job, {Queue: "q", Class: "A"}} {
		if _, err := client.Enqueue(t.Context(), refused); !errors.As(err, &wire) || wire.Spoken[0] != "99" {
			t.Errorf("servers of another wire: %v", err)
		}
	}
	rdb.ZAdd(t.Context(), "{wire}:pyworkers:wire", redis.Z{Member: "1", Score: 1})
	if _, err := client.Enqueue(t.Context(), job); err != nil {
		t.Errorf("servers of both: %v", err)
	}
}

func TestRedisAway(t *testing.T) {
	client, err := pyworkers.New(redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DialerRetries: 1}), pyworkers.Config{})
	if err != nil {
		t.Fatal(err)
	}
	var lost *pyworkers.UnavailableError
	redis.SetLogger(quiet{})
	for _, options := range []pyworkers.Options{{}, {Track: time.Hour}} {
		if _, err := client.Enqueue(t.Context(), pyworkers.Job{Queue: "q", Class: "A", Options: options}); !errors.As(err, &lost) {
			t.Errorf("Redis is away: %v", err)
		}
	}
	if _, err := pyworkers.New(redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}}), pyworkers.Config{Namespace: "app:"}); err == nil {
		t.Error("a cluster without a hash tag")
	}
}

func TestTheCallbackOfABatchFollowsItsMembers(t *testing.T) {
	_, client := connect(t)
	ctx := within(t, 20*time.Second)
	finish := pyworkers.Job{Queue: served, Class: "add", Args: []any{1, 2}, Options: pyworkers.Options{ID: queue(t), Track: time.Hour}}
	var wrong *pyworkers.ArgumentError
	if _, err := client.OpenBatch(ctx, pyworkers.BatchOptions{Tags: []string{""}}); !errors.As(err, &wrong) {
		t.Errorf("an empty tag: %v", err)
	}
	batch, err := client.OpenBatch(ctx, pyworkers.BatchOptions{Description: "orders", Tags: []string{"tenant:7", "é\""}, OnSuccess: &finish})
	if err != nil {
		t.Fatal(err)
	}
	member := pyworkers.Job{Queue: served, Class: "add", Args: []any{1, 2}}
	tracked := pyworkers.Job{Queue: served, Class: "add", Args: []any{3, 4}, Options: pyworkers.Options{Track: time.Hour}}
	ids, err := batch.Enqueue(ctx, member, tracked)
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Result(ctx, ids[1], nil); err != nil {
		t.Fatal(err)
	}
	if status, err := batch.Status(ctx); err != nil || !status.Open || status.Total != 2 || !status.SuccessAt.IsZero() || status.Description != "orders" ||
		!slices.Equal(status.Tags, []string{"tenant:7", "é\""}) {
		t.Errorf("the open batch is %+v (%v)", status, err)
	}
	if err := batch.Close(ctx); err != nil {
		t.Fatal(err)
	}
	var sum int
	if err := batch.Result(ctx, nil); err != nil {
		t.Error(err)
	}
	for status := (pyworkers.Status{State: pyworkers.Unknown}); status.State == pyworkers.Unknown && ctx.Err() == nil; {
		status, _ = client.Status(ctx, finish.ID) // known when it starts
	}
	if err := client.Result(ctx, finish.ID, &sum); err != nil || sum != 3 {
		t.Errorf("the callback returned %d (%v)", sum, err)
	}
	if status, err := batch.Status(ctx); err != nil || status.Open || status.Done != 2 || status.Pending != 0 || status.SuccessAt.IsZero() {
		t.Errorf("the batch is %+v (%v)", status, err)
	}
	var refused *pyworkers.BatchError
	if _, err := batch.Enqueue(ctx, member); !errors.As(err, &refused) || refused.Reason != "ended" {
		t.Errorf("a member of a batch that has ended: %v", err)
	}
	if err := client.Batch("unknown").Open(ctx); !errors.As(err, &refused) || refused.Reason != "unknown" {
		t.Errorf("an unknown batch: %v", err)
	}
	dies, err := client.EnqueueBatch(ctx, pyworkers.BatchOptions{}, member, pyworkers.Job{Queue: served, Class: "fail", Args: []any{"no"}})
	if err != nil {
		t.Fatal(err)
	}
	var failed *pyworkers.JobFailedError
	if err := dies.Result(ctx, nil); !errors.As(err, &failed) || failed.Batch != dies.ID || failed.State != pyworkers.Dead {
		t.Errorf("a batch with a dead member: %v", err)
	}
}

func TestAChainTakesResults(t *testing.T) {
	_, client := connect(t)
	ctx := within(t, 20*time.Second)
	add := func(args ...any) pyworkers.Job { return pyworkers.Job{Queue: served, Class: "add", Args: args} }
	chain, err := client.EnqueueChain(ctx, pyworkers.BatchOptions{}, add(1, 2), add(pyworkers.Result, 10),
		pyworkers.Job{Queue: served, Class: "echo", Args: []any{[]any{"é\u2028", map[string]any{"sum": pyworkers.Result}}}})
	if err != nil {
		t.Fatal(err)
	}
	var found any
	if err := chain.Result(ctx, &found); err != nil || fmt.Sprint(found) != "[[é\u2028 map[sum:13]]]" {
		t.Errorf("the chain returned %v (%v)", found, err)
	}
	broken, err := client.EnqueueChain(ctx, pyworkers.BatchOptions{}, pyworkers.Job{Queue: served, Class: "fail", Args: []any{"x"}}, add(1, 1))
	if err != nil {
		t.Fatal(err)
	}
	if err := broken.Result(ctx, nil); err == nil || !strings.HasPrefix(err.Error(), "the chain "+broken.ID+" is dead: a member is dead: ") {
		t.Errorf("a chain with a dead step: %v", err)
	}
	var unknown *pyworkers.BatchError
	if err := client.Batch("nowhere").Result(ctx, nil); !errors.As(err, &unknown) || unknown.Reason != "unknown" {
		t.Errorf("an unknown batch: %v", err)
	}
	var wrong *pyworkers.ArgumentError
	if _, err := client.EnqueueChain(ctx, pyworkers.BatchOptions{}, add(pyworkers.Result, 1)); !errors.As(err, &wrong) || wrong.Field != "args[0]" {
		t.Errorf("a first step with a result: %v", err)
	}
	if _, err := client.EnqueueChain(ctx, pyworkers.BatchOptions{}, add(1, 1), pyworkers.Job{Queue: served, Class: "add",
		Options: pyworkers.Options{In: time.Second}}); !errors.As(err, &wrong) {
		t.Errorf("a step for later: %v", err)
	}
}

func TestAJobIsCancelled(t *testing.T) {
	_, client := connect(t)
	ctx := within(t, 20*time.Second)
	nap := pyworkers.Call[float64, string](client, "slow", "nap", pyworkers.Options{})
	job, err := nap.Enqueue(ctx, 60)
	if err != nil {
		t.Fatal(err)
	}
	for status := (pyworkers.Status{}); status.State != pyworkers.Running || status.Progress == nil; {
		if status, err = job.Status(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if found, err := job.Cancel(ctx); err != nil || found != pyworkers.Noted {
		t.Fatal(found, err)
	}
	var failed *pyworkers.JobFailedError
	if _, err := job.Result(ctx); !errors.As(err, &failed) || failed.State != pyworkers.Cancelled {
		t.Errorf("a cancelled job: %v", err)
	}
}

func TestAWaitLeavesTheConnectionsToOthers(t *testing.T) {
	rdb, _ := connect(t)
	ctx, options := within(t, 30*time.Second), *rdb.Options()
	options.PoolSize, options.PoolTimeout, options.ClientName = 1, time.Second, queue(t)
	options.PushNotificationProcessor = nil
	client, err := pyworkers.New(redis.NewClient(&options), pyworkers.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	nap := pyworkers.Call[float64, string](client, "slow", "nap", pyworkers.Options{In: 48 * time.Hour})
	later, err := nap.Enqueue(ctx, 60)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := later.Result(ctx)
		ended <- err
	}()
	eventually(t, "the wait blocks", func() bool {
		return slices.ContainsFunc(strings.Split(rdb.ClientList(ctx).Val(), "\n"), func(line string) bool {
			return strings.Contains(line, options.ClientName) && strings.Contains(line, "cmd=xread")
		})
	})
	if found, err := later.Cancel(ctx); err != nil || found != pyworkers.Removed {
		t.Error(found, err)
	}
	var failed *pyworkers.JobFailedError
	if err := <-ended; !errors.As(err, &failed) || failed.State != pyworkers.Cancelled {
		t.Errorf("a job that waited: %v", err)
	}
}
