package pyworkers_test

import (
	"context"
	"crypto/sha1"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	pyworkers "github.com/pyworkers/pyworkers/contrib/clients/go"
)

// serve runs a worker until the function that it returns is called, or until the end of the test.
func serve(t testing.TB, client *pyworkers.Client, options pyworkers.ServeOptions, handlers ...pyworkers.Handler) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	if options.Logger == nil {
		options.Logger = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	}
	go func() { ended <- pyworkers.Serve(ctx, client, options, handlers...) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	return stop
}

var quietLogger = slog.New(slog.DiscardHandler)

func sha1Of(text string) string { return fmt.Sprintf("%x", sha1.Sum([]byte(text))) }

// eventually waits for a condition.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("not in 30 s: " + what)
		}
	}
}

func identities(t testing.TB, rdb *redis.Client, queue string) []string {
	var found []string
	for identity, queues := range rdb.HGetAll(t.Context(), "pyworkers:owners").Val() {
		if strings.Contains(queues, `"`+queue+`"`) {
			found = append(found, identity)
		}
	}
	return found
}

type addends struct {
	A, B int
	Name string `json:",omitempty"`
}

func TestGoRunsJobsWithTypes(t *testing.T) {
	_, client := connect(t)
	ctx, name := within(t, 30*time.Second), queue(t)
	serve(t, client, pyworkers.ServeOptions{},
		pyworkers.HandleFunc(name, "add", func(ctx context.Context, in addends) (map[string]any, error) {
			message := pyworkers.CurrentMessage(ctx)
			return map[string]any{"sum": in.A + in.B, "name": in.Name, "attempt": message.Attempt, "class": message.Class}, nil
		}),
		pyworkers.HandleFunc(name, "count", func(_ context.Context, args pyworkers.Args) (int, error) { return len(args), nil }),
		pyworkers.HandleFunc(name, "first", func(_ context.Context, one []string) (string, error) { return one[0], nil }),
		pyworkers.HandleFunc(name, "nothing", func(context.Context, struct{}) (any, error) { return nil, nil }),
	)
	for _, want := range []struct {
		class  string
		args   []any
		result string
	}{
		{"add", []any{1, 2}, `{"attempt":0,"class":"add","name":"","sum":3}`},
		{"add", []any{1, 2, "x"}, `{"attempt":0,"class":"add","name":"x","sum":3}`},
		{"count", []any{1, nil, "x"}, "3"},
		{"first", []any{[]string{"é"}}, `"é"`},
		{"nothing", nil, "null"},
	} {
		options := pyworkers.Options{Track: time.Hour}
		id, err := client.Enqueue(ctx, pyworkers.Job{Queue: name, Class: want.class, Args: want.args, Options: options})
		if err != nil {
			t.Fatal(err)
		}
		var result json.RawMessage
		if err := client.Result(ctx, id, &result); err != nil || string(result) != want.result {
			t.Errorf("%s%v is %s (%v)", want.class, want.args, result, err)
		}
	}
}

// nilError and brokenResult panic outside of the handler.
type nilError struct{ text string }

func (e *nilError) Error() string { return e.text }

type brokenResult struct{}

func (brokenResult) MarshalJSON() ([]byte, error) { panic("oh") }

func TestFailuresAreRetriedBuriedOrDropped(t *testing.T) {
	rdb, client := connect(t)
	ctx, name := within(t, 30*time.Second), queue(t)
	fails := func(class string, err error) pyworkers.Handler {
		return pyworkers.HandleFunc(name, class, func(context.Context, pyworkers.Args) (any, error) { return nil, err })
	}
	serve(t, client, pyworkers.ServeOptions{},
		fails("fail", fmt.Errorf("wrapped: %w", &pyworkers.KeyError{Message: "no"})),
		fails("retry in", pyworkers.RetryIn(time.Hour, errors.New("later"))),
		fails("kill", pyworkers.Kill(errors.New("never"))),
		fails("discard", pyworkers.Discard(errors.New("gone"))),
		fails("snooze", pyworkers.Snooze(time.Hour)),
		fails("once", errors.New("no")).With(pyworkers.HandlerOptions{Retry: pyworkers.Count(0)}),
		pyworkers.HandleFunc(name, "panic", func(context.Context, pyworkers.Args) (any, error) { panic("oh") }),
		fails("nil error", (*nilError)(nil)),
		fails("broken delay", errors.New("no")).With(pyworkers.HandlerOptions{RetryIn: func(int, error) time.Duration { panic("oh") }}),
		pyworkers.HandleFunc(name, "broken result", func(context.Context, pyworkers.Args) (any, error) { return brokenResult{}, nil }),
		pyworkers.HandleFunc(name, "slow", func(ctx context.Context, _ pyworkers.Args) (any, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}).With(pyworkers.HandlerOptions{Timeout: 10 * time.Millisecond}),
		pyworkers.HandleFunc(name, "typed", func(context.Context, addends) (any, error) { return nil, nil }),
	)
	for _, want := range []struct {
		class, set, errClass, message string
		options                       pyworkers.Options
		state                         pyworkers.State
	}{
		{class: "fail", set: "retry", errClass: "pyworkers.KeyError", message: "wrapped: no", state: pyworkers.Retrying},
		{class: "fail", set: "dead", errClass: "pyworkers.KeyError", options: pyworkers.Options{Retry: pyworkers.Count(0)}, state: pyworkers.Dead},
		{class: "fail", options: pyworkers.Options{Retry: pyworkers.No}, state: pyworkers.Failed},
		{class: "retry in", set: "retry", errClass: "error", message: "later", state: pyworkers.Retrying},
		{class: "kill", set: "dead", errClass: "error", message: "never", state: pyworkers.Dead},
		{class: "discard", state: pyworkers.Failed},
		{class: "snooze", set: "schedule", state: pyworkers.Scheduled},
		{class: "once", set: "dead", errClass: "error", message: "no", state: pyworkers.Dead},
		{class: "panic", set: "retry", errClass: "panic", message: "oh", options: pyworkers.Options{Backtrace: pyworkers.Yes}, state: pyworkers.Retrying},
		{class: "nil error", set: "retry", errClass: "panic", options: pyworkers.Options{Backtrace: pyworkers.Yes}, state: pyworkers.Retrying},
		{class: "broken delay", set: "retry", errClass: "error", message: "no", state: pyworkers.Retrying},
		{class: "broken result", set: "retry", errClass: "panic", message: "oh", options: pyworkers.Options{Backtrace: pyworkers.Yes}, state: pyworkers.Retrying},
		{class: "slow", set: "retry", errClass: "JobTimeout", state: pyworkers.Retrying},
		{class: "typed", set: "retry", errClass: "BadArgumentError", state: pyworkers.Retrying},
		{class: "unknown", set: "retry", errClass: "UnknownJobError", state: pyworkers.Retrying},
	} {
		want.options.Track = time.Hour
		id, err := client.Enqueue(ctx, pyworkers.Job{Queue: name, Class: want.class, Options: want.options})
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, want.class+" has ended", func() bool {
			status, _ := client.Status(ctx, id)
			return status.State == want.state
		})
		if want.set == "" {
			continue
		}
		var stored map[string]any
		for _, job := range rdb.ZRange(ctx, want.set, 0, -1).Val() {
			if strings.Contains(job, id) {
				_ = json.Unmarshal([]byte(job), &stored)
			}
		}
		if stored == nil {
			t.Errorf("%s is not in %s", want.class, want.set)
			continue
		}
		if got := fmt.Sprint(stored["error_class"]); want.errClass != "" && got != want.errClass {
			t.Errorf("%s has the error %s", want.class, got)
		}
		if got := fmt.Sprint(stored["error_message"]); want.message != "" && got != want.message {
			t.Errorf("%s has the message %s", want.class, got)
		}
		if _, has := stored["error_backtrace"]; has != (want.errClass == "panic") {
			t.Errorf("%s: error_backtrace %v", want.class, has)
		}
	}
}

func TestAnInvalidJobIsDead(t *testing.T) {
	rdb, client := connect(t)
	ctx, name := within(t, 30*time.Second), queue(t)
	serve(t, client, pyworkers.ServeOptions{}, pyworkers.HandleFunc(name, "A", func(context.Context, pyworkers.Args) (any, error) { return nil, nil }))
	bad := []string{"no JSON of " + name, `{"class":7,"queue":"` + name + `"}`, `["` + name + `"]`, `{"jid":"x","of":"` + name + `"}`}
	for _, raw := range bad {
		rdb.LPush(ctx, "queue:"+name, raw)
	}
	eventually(t, "the jobs are dead", func() bool {
		dead := slices.DeleteFunc(rdb.ZRange(ctx, "dead", 0, -1).Val(), func(raw string) bool { return !strings.Contains(raw, name) })
		return len(dead) == len(bad)
	})
}

func TestNothingIsLostAtAStop(t *testing.T) {
	rdb, client := connect(t)
	ctx, name := within(t, 60*time.Second), queue(t)
	var began, ended atomic.Int64
	handler := pyworkers.HandleFunc(name, "nap", func(ctx context.Context, in addends) (any, error) {
		began.Add(1)
		select {
		case <-time.After(time.Duration(in.A) * time.Millisecond):
			ended.Add(1)
			return nil, nil
		case <-ctx.Done():
			if context.Cause(ctx) != pyworkers.ErrStopping {
				t.Errorf("the cause is %v", context.Cause(ctx))
			}
			return nil, ctx.Err()
		}
	})
	jobs := make([]pyworkers.Job, 50)
	for i := range jobs {
		jobs[i] = pyworkers.Job{Queue: name, Class: "nap", Args: []any{i % 2 * 600_000, i}}
	}
	if _, err := client.EnqueueMany(ctx, jobs); err != nil {
		t.Fatal(err)
	}
	stop := serve(t, client, pyworkers.ServeOptions{Concurrency: 10, Grace: 200 * time.Millisecond}, handler)
	eventually(t, "all goroutines run a long job", func() bool { return began.Load()-ended.Load() == 10 })
	owners := identities(t, rdb, name)
	if len(owners) != 1 || rdb.PTTL(ctx, "pyworkers:lease:"+owners[0]).Val() <= 0 {
		t.Errorf("the owners are %v", owners)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if waiting := rdb.LLen(ctx, "queue:"+name).Val(); waiting != 50-ended.Load() {
		t.Errorf("%d jobs wait, and %d have ended", waiting, ended.Load())
	}
	if owners := identities(t, rdb, name); len(owners) != 0 {
		t.Errorf("the owners are %v", owners)
	}
	if left := rdb.Keys(ctx, "*"+name+"*inprogress").Val(); len(left) != 0 {
		t.Errorf("left are %v", left)
	}
}

func TestAWorkerIsShownAndObeysSignals(t *testing.T) {
	rdb, client := connect(t)
	ctx, name := within(t, 30*time.Second), queue(t)
	if _, err := client.Enqueue(ctx, pyworkers.Job{Queue: name, Class: "nap", Args: []any{strings.Repeat("x", 20_000)}}); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		options := pyworkers.ServeOptions{Concurrency: 3, Grace: 10 * time.Millisecond}
		ended <- pyworkers.Serve(ctx, client, options, pyworkers.HandleFunc(name, "nap", func(ctx context.Context, _ pyworkers.Args) (any, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}))
	}()
	var identity string
	eventually(t, "the running job is shown", func() bool {
		for _, identity = range rdb.SMembers(ctx, "processes").Val() {
			for _, job := range rdb.HGetAll(ctx, identity+":work").Val() {
				if strings.Contains(job, name) {
					if len(job) > 1000 || !strings.Contains(job, "bytes, not shown)") {
						t.Errorf("the job is shown as %s", job)
					}
					return true
				}
			}
		}
		return false
	})
	about := rdb.HGetAll(ctx, identity).Val()
	if about["busy"] != "1" || about["concurrency"] != "3" || about["quiet"] != "false" || !json.Valid([]byte(about["info"])) {
		t.Errorf("it is shown as %v", about)
	}
	rdb.LPush(ctx, identity+"-signals", "TERM")
	if err := <-ended; err != nil || rdb.LLen(ctx, "queue:"+name).Val() != 1 || rdb.SIsMember(ctx, "processes", identity).Val() {
		t.Errorf("after TERM: %v", err)
	}
}

func firstOf(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return names[0]
}
