package pyworkers

import (
	"context"
	"fmt"
	"time"
)

var cancelScript = newScript("cancel")

// Cancellation is what a cancellation found.
type Cancellation string

// What a cancellation can find.
const (
	// Removed is a job that was waiting, in a queue or for its time.
	Removed Cancellation = "removed"
	// Noted is a job that was not waiting: if it is running, its server asks it to end within a second, and if it is
	// unknown, servers do not start it for a day.
	Noted Cancellation = "noted"
)

// Cancel cancels a job. It searches all waiting jobs, some thousand in each round trip.
func (c *Client) Cancel(ctx context.Context, id string) (Cancellation, error) {
	if !isPrintable(id) {
		return "", &ArgumentError{"id", fmt.Sprintf("is a text that is not empty, not %q", id), nil}
	}
	keys := []string{c.own("cancelled"), c.key("schedule"), c.key("retry"), c.key("queues")}
	day := time.Now().UTC().Format(time.DateOnly)
	for place := any(""); ; {
		reply, err := c.run(ctx, cancelScript, keys, []any{id, place, day, c.ns})
		if err != nil {
			return "", err
		}
		switch row := listOf(reply); {
		case len(row) == 2 && row[0] == "searching":
			place = row[1]
		case len(row) == 1 && (row[0] == "removed" || row[0] == "noted"):
			return Cancellation(row[0].(string)), nil
		default:
			return "", fmt.Errorf("pyworkers: cancel.lua answered %v: it is of another version", reply)
		}
	}
}
