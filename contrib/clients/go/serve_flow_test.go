package pyworkers_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	pyworkers "github.com/pyworkers/pyworkers/contrib/clients/go"
)

func add(_ context.Context, in addends) (int, error) { return in.A + in.B, nil }

func TestMembersInGoCountAndAChainGoesThroughBothLanguages(t *testing.T) {
	_, client := connect(t)
	ctx, name := within(t, 60*time.Second), queue(t)
	refuse := func(context.Context, pyworkers.Args) (any, error) { return nil, pyworkers.Kill(errors.New("no")) }
	serve(t, client, pyworkers.ServeOptions{}, pyworkers.HandleFunc(name, "add", add), pyworkers.HandleFunc(name, "refuse", refuse))
	job := func(queue, class string, args ...any) pyworkers.Job {
		return pyworkers.Job{Queue: queue, Class: class, Args: args}
	}

	after := job(name, "add", 3, 4)
	after.ID, after.Track = "after-"+name, time.Hour
	jobs := make([]pyworkers.Job, 100)
	for i := range jobs {
		jobs[i] = job(name, "add", i, 1)
	}
	batch, err := client.EnqueueBatch(ctx, pyworkers.BatchOptions{OnSuccess: &after}, jobs...)
	if err != nil {
		t.Fatal(err)
	}
	if err := batch.Result(ctx, nil); err != nil {
		t.Error(err)
	}
	if status, err := batch.Status(ctx); err != nil || status.Done != 100 || status.Total != 100 {
		t.Errorf("the batch is %+v (%v)", status, err)
	}
	eventually(t, "the callback has started", func() bool {
		status, _ := client.Status(ctx, after.ID)
		return status.State != pyworkers.Unknown
	})
	var sum int
	if err := client.Result(ctx, after.ID, &sum); err != nil || sum != 7 {
		t.Errorf("the callback returned %d (%v)", sum, err)
	}
	dies, err := client.EnqueueBatch(ctx, pyworkers.BatchOptions{}, job(name, "add", 1, 1), job(name, "refuse"))
	if err != nil {
		t.Fatal(err)
	}
	var failed *pyworkers.JobFailedError
	if err := dies.Result(ctx, nil); !errors.As(err, &failed) || failed.State != pyworkers.Dead {
		t.Errorf("the batch with a dead member: %v", err)
	}
	chain, err := client.EnqueueChain(ctx, pyworkers.BatchOptions{}, job(name, "add", 1, 2), job(served, "add", pyworkers.Result, 10), job(name, "add", pyworkers.Result, 100))
	if err != nil {
		t.Fatal(err)
	}
	if err := chain.Result(ctx, &sum); err != nil || sum != 113 {
		t.Errorf("the chain returned %d (%v)", sum, err)
	}
}

func TestLocksAreReleasedAndExpiredAndSealedJobsAreKnown(t *testing.T) {
	_, client := connect(t)
	ctx, name := within(t, 60*time.Second), queue(t)
	begun, finish := make(chan string, 10), make(chan struct{})
	serve(t, client, pyworkers.ServeOptions{}, pyworkers.HandleFunc(name, "wait", func(ctx context.Context, word string) (string, error) {
		begun <- word
		<-finish
		return word, nil
	}))
	enqueue := func(word string, options pyworkers.Options) string {
		options.Track = time.Hour
		id, err := client.Enqueue(ctx, pyworkers.Job{Queue: name, Class: "wait", Args: []any{word}, Options: options})
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	whole := pyworkers.Options{UniqueFor: time.Hour}
	start := pyworkers.Options{UniqueFor: time.Hour, UniqueUntil: pyworkers.UntilStart}
	first, early := enqueue("whole", whole), enqueue("start", start)
	<-begun
	<-begun
	eventually(t, "the lock until the start is released", func() bool { return enqueue("start", start) != early })
	if enqueue("whole", whole) != first {
		t.Error("the lock until the end is released at the start")
	}
	close(finish)
	if err := client.Result(ctx, first, nil); err != nil {
		t.Error(err)
	}
	if enqueue("whole", whole) == first {
		t.Error("the lock is not released at the end")
	}
	// A job that starts within the difference of two clocks is not late.
	eventually(t, "a late job has expired", func() bool {
		var expired *pyworkers.JobFailedError
		err := client.Result(ctx, enqueue("late", pyworkers.Options{ExpiresIn: time.Nanosecond}), nil)
		return errors.As(err, &expired) && expired.State == pyworkers.Expired
	})
	if os.Getenv("PYWORKERS_ENCRYPTION__KEYS") == "" {
		return
	}
	var word string
	if err := client.Result(ctx, enqueue("hidden", pyworkers.Options{Encrypt: true}), &word); err != nil || word != "hidden" {
		t.Errorf("the sealed job returned %q (%v)", word, err)
	}
}

func TestAPausedQueueRestsAndARunningJobIsCancelled(t *testing.T) {
	rdb, client := connect(t)
	ctx, name := within(t, 60*time.Second), queue(t)
	var causes atomic.Value
	serve(t, client, pyworkers.ServeOptions{},
		pyworkers.HandleFunc(name, "nap", func(ctx context.Context, _ struct{}) (any, error) {
			total := 2.0
			if err := pyworkers.CurrentMessage(ctx).Progress(pyworkers.Progress{Done: 1, Total: &total, Text: "half"}); err != nil {
				return nil, err
			}
			<-ctx.Done()
			causes.Store(context.Cause(ctx))
			return nil, ctx.Err()
		}),
		pyworkers.HandleFunc(name, "add", add))
	job := pyworkers.Job{Queue: name, Class: "nap", Options: pyworkers.Options{Track: time.Hour}}
	id, err := client.Enqueue(ctx, job)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the progress is shown", func() bool {
		status, _ := client.Status(ctx, id)
		return status.State == pyworkers.Running && status.Progress != nil && *status.Progress.Total == 2 && status.Progress.Text == "half"
	})
	if found, err := client.Cancel(ctx, id); err != nil || found != pyworkers.Noted {
		t.Errorf("Cancel is %s (%v)", found, err)
	}
	var failed *pyworkers.JobFailedError
	if err := client.Result(ctx, id, nil); !errors.As(err, &failed) || failed.State != pyworkers.Cancelled || causes.Load() != pyworkers.ErrCancelled {
		t.Errorf("the cancelled job: %v, %v", err, causes.Load())
	}
	eventually(t, "the note is removed", func() bool { return rdb.ZScore(ctx, "pyworkers:cancelled", id).Err() == redis.Nil })

	if id, err = client.Enqueue(ctx, job); err != nil {
		t.Fatal(err)
	}
	rdb.HSetNX(ctx, "it-"+id, "cancelled", time.Now().Unix()) // as Sidekiq's cancel!
	if err := client.Result(ctx, id, nil); !errors.As(err, &failed) || failed.State != pyworkers.Cancelled {
		t.Errorf("the job that Sidekiq cancelled: %v", err)
	}
	if rdb.Exists(ctx, "it-"+id).Val() != 0 {
		t.Error("the mark is there after the end")
	}

	rdb.SAdd(ctx, "paused", name)
	job.Class, job.Args = "add", []any{1, 2}
	eventually(t, "the queue rests", func() bool {
		if _, err := client.Enqueue(ctx, job); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
		return rdb.LLen(ctx, "queue:"+name).Val() > 0
	})
	rdb.SRem(ctx, "paused", name)
	eventually(t, "the queue goes on", func() bool { return rdb.LLen(ctx, "queue:"+name).Val() == 0 })
}

func TestALostLeaseEndsTheJobsAndBeginsAnother(t *testing.T) {
	rdb, client := connect(t)
	ctx, name := within(t, 60*time.Second), queue(t)
	var runs atomic.Int64
	serve(t, client, pyworkers.ServeOptions{Lease: time.Second}, pyworkers.HandleFunc(name, "nap", func(ctx context.Context, _ struct{}) (int64, error) {
		if run := runs.Add(1); run > 1 {
			return run, nil
		}
		<-ctx.Done()
		if context.Cause(ctx) != pyworkers.ErrLeaseLost {
			t.Errorf("the cause is %v", context.Cause(ctx))
		}
		return 0, nil
	}))
	id, err := client.Enqueue(ctx, pyworkers.Job{Queue: name, Class: "nap", Options: pyworkers.Options{Track: time.Hour}})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the job runs", func() bool { return runs.Load() == 1 })
	// As a peer does it; what the worker takes before it knows comes back by itself.
	lost := identities(t, rdb, name)[0]
	_, err = rdb.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.Del(ctx, "pyworkers:lease:"+lost)
		pipe.Set(ctx, "pyworkers:recovered:"+lost, 1, time.Minute)
		pipe.HDel(ctx, "pyworkers:owners", lost)
		pipe.LMove(ctx, "queue:"+name+":"+lost+":inprogress", "queue:"+name, "LEFT", "RIGHT")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var run int64
	if err := client.Result(ctx, id, &run); err != nil || run < 2 {
		t.Errorf("the result is that of run %d (%v)", run, err)
	}
	if now := firstOf(identities(t, rdb, name)); now == "" || now == lost {
		t.Errorf("the identity is %q", now)
	}
}

func TestAMarkedJobRunsAloneOrIsDead(t *testing.T) {
	rdb, client := connect(t)
	ctx, name := within(t, 60*time.Second), queue(t)
	var running, most atomic.Int64
	serve(t, client, pyworkers.ServeOptions{}, pyworkers.HandleFunc(name, "A", func(ctx context.Context, _ pyworkers.Args) (any, error) {
		most.Store(max(most.Load(), running.Add(1)))
		time.Sleep(10 * time.Millisecond)
		running.Add(-1)
		return nil, nil
	}))
	push := func(jid, entry string) string {
		raw := fmt.Sprintf(`{"class":"A","queue":%q,"jid":"%s-%s","args":[]}`, name, jid, name)
		field := sha1Of(raw)
		rdb.HSet(ctx, "pyworkers:suspects", field, entry)
		rdb.LPush(ctx, "queue:"+name, raw+"\t")
		return field
	}
	fields := []string{push("one", "1 0"), push("first", "2 0"), push("second", "2 1"), push("third", "5 2"), push("killer", "3 3")}
	eventually(t, "the entries are gone", func() bool { return rdb.HMGet(ctx, "pyworkers:suspects", fields...).Val()[4] == nil })
	eventually(t, "all have ended", func() bool {
		return !slices.ContainsFunc(rdb.HMGet(ctx, "pyworkers:suspects", fields...).Val(), func(entry any) bool { return entry != nil })
	})
	if most.Load() > 2 { // one is no suspect
		t.Errorf("%d suspects ran at once", most.Load())
	}
	if !slices.ContainsFunc(rdb.ZRange(ctx, "dead", 0, -1).Val(), func(raw string) bool { return strings.Contains(raw, "killer-"+name) }) {
		t.Error("the job that killed three servers is not dead")
	}
}

// unreliable is a connection that is lost now and then: after a command was sent, before its reply is read.
type unreliable struct {
	net.Conn
	lost *atomic.Int64
}

func (c *unreliable) Read(to []byte) (int, error) {
	number, err := c.Conn.Read(to)
	if err == nil && rand.IntN(10) == 0 {
		c.lost.Add(1)
		_ = c.Conn.Close()
		return 0, net.ErrClosed
	}
	return number, err
}

func TestNoJobIsLostWithReplies(t *testing.T) {
	_, client := connect(t)
	ctx, name := within(t, 90*time.Second), queue(t)
	options, err := redis.ParseURL(os.Getenv("REDIS_URL"))
	if err != nil {
		t.Fatal(err)
	}
	lost := new(atomic.Int64)
	options.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
		connection, err := (&net.Dialer{}).DialContext(ctx, network, address)
		return &unreliable{connection, lost}, err
	}
	weak, err := pyworkers.New(redis.NewClient(options), pyworkers.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = weak.Close() })
	const number = 1000
	jobs := make([]pyworkers.Job, number)
	for i := range jobs {
		jobs[i] = pyworkers.Job{Queue: name, Class: "A", Args: []any{i}}
	}
	batch, err := client.EnqueueBatch(ctx, pyworkers.BatchOptions{}, jobs...)
	if err != nil {
		t.Fatal(err)
	}
	var runs [number]atomic.Int64
	handler := pyworkers.HandleFunc(name, "A", func(_ context.Context, i int) (any, error) {
		runs[i].Add(1)
		return nil, nil
	})
	stopped, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		for { // the first connection may be lost, too
			err := pyworkers.Serve(stopped, weak, pyworkers.ServeOptions{Concurrency: 5, Logger: quietLogger}, handler)
			if stopped.Err() != nil || err == nil {
				ended <- err
				return
			}
		}
	}()
	if err := batch.Result(ctx, nil); err != nil {
		status, _ := batch.Status(ctx)
		about, _ := json.Marshal(status)
		t.Fatalf("%v: %s, %d connections were lost", err, about, lost.Load())
	}
	stop()
	if err := <-ended; err != nil && !errors.As(err, new(*pyworkers.UnavailableError)) {
		t.Error(err)
	}
	for i := range runs {
		if runs[i].Load() != 1 {
			t.Errorf("job %d ran %d times", i, runs[i].Load())
		}
	}
	if lost.Load() < 3 {
		t.Errorf("only %d connections were lost", lost.Load())
	}
}

func TestAQueueWithLimitsOrAnOrderIsRefused(t *testing.T) {
	rdb, client := connect(t)
	ctx, name := within(t, 30*time.Second), queue(t)
	python := "python:1:" + name
	t.Cleanup(func() { rdb.SRem(context.Background(), "processes", python); rdb.Del(context.Background(), python) })
	declare := func(rule string) {
		rdb.HSet(ctx, python, "features", fmt.Sprintf(`{%q:[%q]}`, name, rule))
		rdb.SAdd(ctx, "processes", python)
	}
	declare("ordered")
	err := pyworkers.Serve(ctx, client, pyworkers.ServeOptions{Logger: quietLogger}, pyworkers.HandleFunc(name, "add", add))
	if err == nil || !strings.Contains(err.Error(), python) {
		t.Errorf("the error is %v", err)
	}

	rdb.SRem(ctx, "processes", python)
	stop := serve(t, client, pyworkers.ServeOptions{Logger: quietLogger}, pyworkers.HandleFunc(name, "add", add))
	waiting := func() int64 {
		if _, err := client.Enqueue(ctx, pyworkers.Job{Queue: name, Class: "add", Args: []any{1, 2}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
		return rdb.LLen(ctx, "queue:"+name).Val()
	}
	eventually(t, "the queue is served", func() bool { return waiting() == 0 })
	declare("limited")
	eventually(t, "the queue rests", func() bool { return waiting() > 9 })
	rdb.SRem(ctx, "processes", python)
	eventually(t, "the queue goes on", func() bool { return rdb.LLen(ctx, "queue:"+name).Val() == 0 })
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestServeRefusesWrongArguments(t *testing.T) {
	client, err := pyworkers.New(redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1}), pyworkers.Config{})
	if err != nil {
		t.Fatal(err)
	}
	good := pyworkers.HandleFunc("q", "add", add)
	for name, err := range map[string]error{
		"no handler":       pyworkers.Serve(t.Context(), client, pyworkers.ServeOptions{}),
		"an empty handler": pyworkers.Serve(t.Context(), client, pyworkers.ServeOptions{}, pyworkers.Handler{}),
		"two handlers":     pyworkers.Serve(t.Context(), client, pyworkers.ServeOptions{}, good, good),
		"a queue":          pyworkers.Serve(t.Context(), client, pyworkers.ServeOptions{}, pyworkers.HandleFunc("a b", "add", add)),
		"a short lease":    pyworkers.Serve(t.Context(), client, pyworkers.ServeOptions{Lease: time.Millisecond}, good),
		"a timeout":        pyworkers.Serve(t.Context(), client, pyworkers.ServeOptions{}, good.With(pyworkers.HandlerOptions{Timeout: -1})),
	} {
		if err == nil || errors.As(err, new(*pyworkers.UnavailableError)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	var away *pyworkers.UnavailableError
	if err := pyworkers.Serve(t.Context(), client, pyworkers.ServeOptions{}, good); !errors.As(err, &away) {
		t.Errorf("no Redis: %v", err)
	}
}
