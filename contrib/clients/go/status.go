package pyworkers

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// State is where a tracked job is.
type State string

// The states of a job.
const (
	Waiting   State = "waiting"
	Scheduled State = "scheduled"
	Running   State = "running"
	Retrying  State = "retrying"
	Done      State = "done"
	Failed    State = "failed" // for good, and dropped
	Dead      State = "dead"
	Cancelled State = "cancelled"
	Expired   State = "expired"
	Unknown   State = "unknown" // not tracked, or its status has expired
)

var states = []State{Waiting, Scheduled, Running, Retrying, Done, Failed, Dead, Cancelled, Expired, Unknown}

// Final is true if the job has ended.
func (s State) Final() bool {
	return slices.Contains([]State{Done, Failed, Dead, Cancelled, Expired}, s)
}

// Status is the status of a tracked job. Times are of the last run; the zero time is one that is not known.
type Status struct {
	State State
	Queue string
	// Attempt is the number of earlier failures.
	Attempt int
	// Progress is nil if the job has reported none.
	Progress   *Progress
	StartedAt  time.Time
	FinishedAt time.Time
	// Error is class and message of the last failure.
	Error string
}

// Progress is how far a job is.
type Progress struct {
	Done  float64
	Total *float64 // nil: not known
	Text  string
}

// UnmarshalJSON reads a list: done, total, text.
func (p *Progress) UnmarshalJSON(raw []byte) error {
	return json.Unmarshal(raw, &[]any{&p.Done, &p.Total, &p.Text})
}

// answer is the end of a job, for those who wait for its result.
type answer struct {
	State  State           `json:"state"`
	Result json.RawMessage `json:"result"`
	Class  string          `json:"error_class"`
	Error  string          `json:"error"`
	Member string          `json:"jid"`
	Reason State           `json:"reason"`
}

var statusFields = []any{"state", "queue", "attempt", "progress", "started_at", "finished_at", "error"}

// Status is the status of a job that was enqueued with Track; Unknown for any other.
func (c *Client) Status(ctx context.Context, id string) (Status, error) {
	status, _, err := c.look(ctx, id)
	return status, err
}

// Result waits for the end of a job that was enqueued with Track, and stores what it returned in the value to which
// result points, or nowhere if that is nil. With the id of a batch, it waits for the end of that.
//
// It polls nothing: it waits in a command that Redis answers at the end of the job, on its own connection. The error is a
// [JobFailedError] if the job has ended without a result, an [UntrackedError] at once if nothing is known of the job, and
// the error of the context. A job that a server pushes, a callback or a step, is known when it starts.
func (c *Client) Result(ctx context.Context, id string, result any) error {
	return c.result(ctx, id, "", result)
}

// result is Result. kind is batch, chain or group if the id is known to be of one.
func (c *Client) result(ctx context.Context, id, kind string, result any) error {
	status, end, err := c.look(ctx, id)
	if err == nil && end == nil && status.State == Unknown {
		c.leave(ctx)
		status, end, err = c.look(ctx, id)
	}
	if err != nil {
		return err
	}
	if end == nil {
		if err := c.checkTracked(ctx, id, status.State); err != nil {
			return err
		}
		if end, err = c.wait(ctx, id, cmp.Or(kind, "job")); err != nil {
			return err
		}
	}
	if end.Member != "" {
		return &JobFailedError{ID: end.Member, State: end.Reason, Batch: id, kind: kind}
	}
	if end.State != Done {
		return &JobFailedError{ID: id, State: end.State, Class: end.Class, Message: end.Error, kind: kind}
	}
	if result == nil {
		return nil
	}
	if err := json.Unmarshal(end.Result, result); err != nil {
		return fmt.Errorf("the result of the job %s cannot be read as %T: %w", id, result, err)
	}
	return nil
}

// look reads the status, and the end if there is one, in one round trip.
func (c *Client) look(ctx context.Context, id string) (Status, *answer, error) {
	if !isPrintable(id) {
		return Status{}, nil, &ArgumentError{"id", fmt.Sprintf("is a text that is not empty, not %q", id), nil}
	}
	read := append([]any{"HMGET", c.own("job:", id)}, statusFields...)
	replies, err := c.send(ctx, read, []any{"XRANGE", c.own("result:", id), "-", "+", "COUNT", 1})
	if err != nil {
		return Status{}, nil, err
	}
	return readStatus(replies[0]), readEntries(replies[1]), nil
}

// checkTracked returns an UntrackedError for a job that will have no result.
func (c *Client) checkTracked(ctx context.Context, id string, state State) error {
	if state.Final() {
		return &UntrackedError{id, fmt.Sprintf("it is %s, but its result is gone", state)}
	}
	if state != Unknown {
		return nil
	}
	replies, err := c.send(ctx, []any{"HEXISTS", c.own("batch:", id), "answer"})
	if err == nil && replies[0] == int64(0) {
		err = &UntrackedError{id, "it was not enqueued with Track, its status has expired, or there was no such job"}
	}
	return err
}

// How long Redis blocks at a time: a connection that is half open is found that late, and a wait of that time is noted
// for the servers, which end it if the job is nowhere.
const block = 5 * time.Second

// Seconds for which the notes of waits live after the last one.
const noteLife = 3600

// wait waits for the end of a job.
func (c *Client) wait(ctx context.Context, id, kind string) (*answer, error) {
	for {
		end, err := c.waitOnce(ctx, id)
		if end != nil {
			return end, nil
		}
		if err != nil && ctx.Err() == nil && !isLost(err) {
			return nil, err
		}
		pause := time.Duration(0)
		if isLost(err) {
			pause = 200 * time.Millisecond
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("the %s %s has not ended in the time: %w", kind, id, ctx.Err())
		case <-time.After(pause):
		}
	}
}

// waitOnce returns at the end of the context, too; its command then ends a little later.
func (c *Client) waitOnce(ctx context.Context, id string) (*answer, error) {
	type reply struct {
		end *answer
		err error
	}
	replies := make(chan reply, 1)
	go func() {
		var found reply
		streams, err := c.waits.XRead(context.WithoutCancel(ctx), &redis.XReadArgs{
			Streams: []string{c.own("result:", id), "0"}, Count: 1, Block: block,
		}).Result()
		switch {
		case err == redis.Nil:
			// The rights of a reader are not enough for a note: then the wait is not noted.
			if err := c.noteWait(ctx, id); isLost(err) {
				found.err = err
			}
		case err != nil:
			found.err = translate(err)
		case len(streams) > 0 && len(streams[0].Messages) > 0:
			found.end = readAnswer(textOf(streams[0].Messages[0].Values["v"]))
		}
		replies <- found
	}()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case found := <-replies:
		return found.end, found.err
	}
}

// noteWait notes a wait at Redis' time.
func (c *Client) noteWait(ctx context.Context, id string) error {
	now, err := c.rdb.Time(ctx).Result()
	if err != nil {
		return translate(err)
	}
	awaited := c.own("awaited")
	_, err = c.send(ctx, []any{"ZADD", awaited, seconds(now), id}, []any{"EXPIRE", awaited, noteLife})
	return err
}

// readStatus reads the values of statusFields; an invalid one counts as missing.
func readStatus(values any) Status {
	texts := textsOf(values, len(statusFields))
	status := Status{State: State(texts[0]), Queue: texts[1], Error: texts[6]}
	if !slices.Contains(states, status.State) {
		return Status{State: Unknown}
	}
	status.Attempt, _ = asCount([]byte(texts[2]))
	var progress Progress
	if json.Unmarshal([]byte(texts[3]), &progress) == nil {
		status.Progress = &progress
	}
	status.StartedAt, status.FinishedAt = readTime(texts[4]), readTime(texts[5])
	return status
}

// textsOf are the values of fields by the reply to HMGET; "" for a missing one.
func textsOf(reply any, number int) []string {
	texts, values := make([]string, number), listOf(reply)
	for i := range min(number, len(values)) {
		texts[i] = textOf(values[i])
	}
	return texts
}

func readTime(text string) time.Time {
	at, known := epoch(text)
	if !known {
		return time.Time{}
	}
	return time.UnixMicro(int64(at * 1e6))
}

// readEntries is the end of a job by the reply to XRANGE; nil without one.
func readEntries(reply any) *answer {
	entries := append(listOf(reply), nil)
	entry := append(listOf(entries[0]), nil, nil) // the id, and a list of the name and the value of a field
	fields := append(listOf(entry[1]), nil, nil)
	return readAnswer(textOf(fields[1]))
}

func readAnswer(text string) *answer {
	var found answer
	if json.Unmarshal([]byte(text), &found) != nil || !slices.Contains(states, found.State) {
		return nil
	}
	return &found
}
