// Command racer takes part in the races of tests/clients/test_races.py: it prints the jid of each round, and the number
// of jobs that found room. With the id of a batch and a number, it adds this many members to it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"strconv"
	"time"

	pyworkers "github.com/pyworkers/pyworkers/contrib/clients/go"
)

func main() {
	client, err := pyworkers.FromEnv()
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	if len(os.Args) > 2 {
		add(ctx, client.Batch(os.Args[1]), os.Args[2])
		return
	}
	var rounds, room int
	fmt.Println("ready")
	if _, err := fmt.Scanln(&rounds, &room); err != nil {
		log.Fatal(err)
	}
	ids := make([]string, rounds)
	for round := range ids {
		ids[round], err = client.Enqueue(ctx, pyworkers.Job{
			Queue: "race", Class: "Race", Args: []any{map[string]any{"round": round, "é": []any{1.0, 1e21}}},
			Options: pyworkers.Options{UniqueFor: time.Minute},
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	accepted := 0
	for {
		_, err = client.Enqueue(ctx, pyworkers.Job{
			Queue: "bounded", Class: "Race", Args: []any{accepted}, Options: pyworkers.Options{MaxWaiting: room},
		})
		var full *pyworkers.QueueFullError
		if errors.As(err, &full) {
			break
		}
		if err != nil {
			log.Fatal(err)
		}
		accepted++
	}
	if err := json.NewEncoder(os.Stdout).Encode(map[string]any{"jids": ids, "accepted": accepted}); err != nil {
		log.Fatal(err)
	}
}

// add adds members, one after the other, and prints the number of each.
func add(ctx context.Context, batch *pyworkers.Batch, number string) {
	members, err := strconv.Atoi(number)
	if err != nil {
		log.Fatal(err)
	}
	for one := 1; one <= members; one++ {
		if _, err := batch.Enqueue(ctx, pyworkers.Job{Queue: "clients", Class: "add", Args: []any{one, 1}}); err != nil {
			log.Fatal(err)
		}
		fmt.Println(one)
	}
}
