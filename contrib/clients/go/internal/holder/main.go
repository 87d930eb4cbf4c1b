// Command holder serves the jobs of tests/clients/test_go_faults.py, which wait for files. What they do is written into the
// file LEDGER, a line of JSON each: the pid, then words. GRACE is as in ServeOptions.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	pyworkers "github.com/pyworkers/pyworkers/contrib/clients/go"
)

var ledger = os.Getenv("LEDGER")

func main() {
	client, err := pyworkers.FromEnv()
	check(err)
	grace, err := time.ParseDuration(os.Getenv("GRACE"))
	check(err)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	check(pyworkers.Serve(ctx, client, pyworkers.ServeOptions{Concurrency: 4, Lease: 3 * time.Second, Grace: grace},
		pyworkers.HandleFunc("go", "hold", hold),
	))
}

// hold waits for a file of this name. It ends with its context, but for the name "stuck".
func hold(ctx context.Context, name string) (string, error) {
	note("start", name, pyworkers.CurrentMessage(ctx).Attempt)
	for {
		if _, err := os.Stat(filepath.Join(filepath.Dir(ledger), name)); err == nil {
			note("end", name)
			return name, nil
		}
		if ctx.Err() != nil && name != "stuck" {
			note("asked", name, context.Cause(ctx).Error())
			return "", ctx.Err()
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func note(words ...any) {
	line, err := json.Marshal(append([]any{os.Getpid()}, words...))
	check(err)
	file, err := os.OpenFile(ledger, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	check(err)
	_, err = fmt.Fprintf(file, "%s\n", line)
	check(err)
	check(file.Close())
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
