// Command worker serves a queue for tests/clients/test_go_worker.py, with the rules `limited` or `ordered` if its second
// argument says so. Each job notes its start and its end in the list `ledger` of LEDGER_URL, and lasts as many milliseconds as
// its second argument says. The job `export` notes the page at which it starts and each page that it has done.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	pyworkers "github.com/pyworkers/pyworkers/contrib/clients/go"
)

type work struct {
	Number, Milliseconds int
}

func main() {
	client, err := pyworkers.FromEnv()
	if err != nil {
		log.Fatal(err)
	}
	options, err := redis.ParseURL(os.Getenv("LEDGER_URL"))
	if err != nil {
		log.Fatal(err)
	}
	ledger := redis.NewClient(options)
	name := os.Getenv("PYWORKERS_REDIS__NAMESPACE") + "ledger"
	note := func(word string, number int) error {
		return ledger.RPush(context.Background(), name, fmt.Sprintf("go %s %d", word, number)).Err()
	}
	run := func(ctx context.Context, in work) (int, error) {
		if err := note("start", in.Number); err != nil {
			return 0, err
		}
		select {
		case <-time.After(time.Duration(in.Milliseconds) * time.Millisecond):
			return in.Number, note("end", in.Number)
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
	export := func(ctx context.Context, in work) (int, error) {
		at, err := pyworkers.OpenCheckpoint(ctx, 0)
		if err == nil {
			err = note("start", at.Value)
		}
		for ; err == nil && at.Value < in.Number; err = at.Save(at.Value + 1) {
			time.Sleep(time.Duration(in.Milliseconds) * time.Millisecond)
			if err := note("end", at.Value); err != nil {
				return 0, err
			}
		}
		return 0, err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	serving := pyworkers.ServeOptions{Concurrency: 4, Lease: time.Second, Grace: time.Second}
	var handling pyworkers.HandlerOptions
	switch os.Args[2] {
	case "limited":
		handling.Limits = []pyworkers.Limit{{Name: "two", Concurrency: 2}}
	case "ordered":
		serving.Queues = map[string]pyworkers.QueueOptions{os.Args[1]: {Ordered: true}}
	}
	mark, long := pyworkers.HandleFunc(os.Args[1], "mark", run).With(handling), pyworkers.HandleFunc(os.Args[1], "export", export)
	if err := pyworkers.Serve(ctx, client, serving, mark, long); err != nil {
		log.Fatal(err)
	}
}
