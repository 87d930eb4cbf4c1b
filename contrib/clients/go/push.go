package pyworkers

import (
	"cmp"
	"context"
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// Jobs that one call pushes, all or none. A gigabyte of them would block Redis for seconds.
const (
	portion      = 1000
	portionBytes = 16 << 20
)

//go:embed *.lua
var scripts embed.FS

var pushScript = newScript("push")

type script struct{ text, sha string }

func newScript(name string) script {
	text, err := scripts.ReadFile(name + ".lua")
	if err != nil {
		panic(err)
	}
	sum := sha1.Sum(text)
	return script{string(text), hex.EncodeToString(sum[:])}
}

// Enqueue pushes a job, and returns its id; for a duplicate that is skipped, the id of the job that is there.
//
// Nothing was pushed after an [ArgumentError], [KeyError], [DuplicateError], [QueueFullError] or [BatchError], or a
// refusal of Redis; after an [UnavailableError] the job may have been pushed or not.
func (c *Client) Enqueue(ctx context.Context, job Job) (string, error) {
	made, err := c.making().envelope(&job)
	if err != nil {
		return "", err
	}
	ids, err := c.push(ctx, []*envelope{made})
	if err != nil {
		return "", err
	}
	return ids[0], nil
}

// EnqueueMany pushes jobs, and returns the id of each one as Enqueue does. All jobs are checked before one is sent. They
// are sent a thousand or 16 MB at a time, each portion all or none: with an error come the ids of the portions before it.
func (c *Client) EnqueueMany(ctx context.Context, jobs []Job) ([]string, error) {
	made, err := c.making().envelopes(jobs)
	if err != nil {
		return nil, err
	}
	return c.pushAll(ctx, made)
}

func (c *Client) pushAll(ctx context.Context, jobs []*envelope) ([]string, error) {
	ids := make([]string, 0, len(jobs))
	for _, part := range portions(jobs) {
		pushed, err := c.push(ctx, part)
		if err != nil {
			return ids, err
		}
		ids = append(ids, pushed...)
	}
	return ids, nil
}

// portions are jobs that are sent together: each one ends with the job with which it has a thousand, or 16 MiB.
func portions(jobs []*envelope) (found [][]*envelope) {
	start, size := 0, 0
	for i, job := range jobs {
		size += len(job.payload)
		if end := i + 1; end-start == portion || size >= portionBytes || end == len(jobs) {
			found = append(found, jobs[start:end])
			start, size = end, 0
		}
	}
	return found
}

func (c *Client) making() making { return making{keys: c.keys, now: time.Now()} }

func (m making) envelopes(jobs []Job) ([]*envelope, error) {
	m.stamp = appendTime(nil, seconds(m.now))
	all, made := make([]envelope, len(jobs)), make([]*envelope, len(jobs))
	var room []byte // for several jobs: an allocation for each takes longer than what is written
	for i := range jobs {
		if cap(room) < usualBytes {
			room = make([]byte, 0, usualBytes*min(len(jobs)-i, portion))
		}
		made[i] = &all[i]
		if err := m.make(made[i], &jobs[i], room); err != nil {
			return nil, fieldError("jobs", i, err)
		}
		room = made[i].payload[len(made[i].payload):]
		made[i].payload = slices.Clip(made[i].payload)
	}
	return made, nil
}

// fieldError says which of several jobs is wrong.
func fieldError(list string, i int, err error) error { return fmt.Errorf("%s[%d]: %w", list, i, err) }

func (c *Client) push(ctx context.Context, jobs []*envelope) ([]string, error) {
	if !slices.ContainsFunc(jobs, func(job *envelope) bool { return len(job.asked) > 0 }) {
		return idsOf(jobs), c.pushPlain(ctx, jobs)
	}
	var wait time.Duration
	for _, job := range jobs {
		wait = max(wait, job.wait)
	}
	deadline := time.Now().Add(wait)
	keys, args := c.pushCall(jobs)
	for pause := 10 * time.Millisecond; ; {
		reply, err := c.run(ctx, pushScript, keys, args)
		if err != nil {
			return nil, err
		}
		ids, err := readPush(reply, jobs)
		full, isFull := err.(*QueueFullError)
		if !isFull {
			return ids, err
		}
		most, _ := reply.([]any)[2].(int64)
		if err := c.awaitRoom(ctx, full, most, deadline, &pause); err != nil {
			return nil, err
		}
	}
}

// awaitRoom waits until a queue has at most this many jobs, and returns full if it has more by the deadline.
func (c *Client) awaitRoom(ctx context.Context, full *QueueFullError, most int64, deadline time.Time, pause *time.Duration) error {
	for left := time.Until(deadline); most >= 0 && left > 0; left = time.Until(deadline) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(min(*pause, left)):
		}
		*pause = min(2**pause, 250*time.Millisecond)
		replies, err := c.send(ctx, []any{"LLEN", c.key("queue:", full.Queue)})
		if err != nil {
			return err
		}
		if length, _ := replies[0].(int64); length <= most {
			return nil
		}
	}
	return full
}

func idsOf(jobs []*envelope) []string {
	ids := make([]string, len(jobs))
	for i, job := range jobs {
		ids[i] = job.id
	}
	return ids
}

// pushPlain pushes jobs as Sidekiq does.
func (c *Client) pushPlain(ctx context.Context, jobs []*envelope) error {
	if len(jobs) == 0 {
		return nil
	}
	if err := c.checkWire(ctx); err != nil {
		return err
	}
	_, err := c.send(ctx, c.plain(jobs)...)
	return err
}

func (c *Client) plain(jobs []*envelope) (commands [][]any) {
	queues, parts := byQueue(jobs)
	for _, queue := range queues {
		if queue == "" {
			commands = append(commands, append([]any{"ZADD", c.key("schedule")}, parts[queue]...))
			continue
		}
		commands = append(commands, []any{"SADD", c.key("queues"), queue}, append([]any{"LPUSH", c.key("queue:", queue)}, parts[queue]...))
	}
	return commands
}

// byQueue are the queues of jobs in their order, and the jobs of each: under "" time and job in turn, for the schedule.
func byQueue(jobs []*envelope) (queues []string, parts map[string][]any) {
	parts = make(map[string][]any)
	for _, job := range jobs {
		name, some := job.queue, []any{job}
		if job.at != 0 {
			name, some = "", []any{job.at, job}
		}
		if parts[name] == nil {
			queues = append(queues, name)
		}
		parts[name] = append(parts[name], some...)
	}
	return queues, parts
}

// pushCall is the keys and arguments of push.lua, which describes them.
func (c *Client) pushCall(jobs []*envelope) (keys []string, args []any) {
	places := make(map[string]int)
	queues := []any{}
	var rows []any
	var locks []string
	keys = []string{c.key("queues"), c.key("schedule")}
	for _, job := range jobs {
		if _, known := places[job.queue]; !known {
			places[job.queue] = len(places) + 1
			queues = append(queues, job.queue)
			keys = append(keys, c.key("queue:", job.queue))
		}
		asked := job.asked
		if job.at != 0 {
			asked = append([]any{"at", job.at}, asked...)
		}
		rows = append(append(rows, places[job.queue], job.id, job, len(asked)/2), asked...)
		if job.lock != "" {
			locks = append(locks, c.own(job.lock), c.own(job.lock, ":at"))
		}
	}
	args = append([]any{len(jobs), len(queues)}, queues...)
	return append(keys, locks...), append(append(args, rows...), c.ns)
}

// run calls a script once, by its text if Redis does not have it.
func (c *Client) run(ctx context.Context, script script, keys []string, args []any) (any, error) {
	call := func(command, script string) (any, error) {
		parts := make([]any, 0, 3+len(keys)+len(args))
		parts = append(parts, command, script, len(keys))
		for _, key := range keys {
			parts = append(parts, key)
		}
		replies, err := c.send(ctx, append(parts, args...))
		return replies[0], err
	}
	if err := c.checkWire(ctx); err != nil {
		return nil, err
	}
	reply, err := call("EVALSHA", script.sha)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		reply, err = call("EVAL", script.text)
	}
	return reply, err
}

// readPush is the ids of the jobs by the reply of push.lua.
func readPush(reply any, jobs []*envelope) ([]string, error) {
	row := listOf(reply)
	if len(row) == len(jobs)+1 && row[0] == "pushed" {
		ids := idsOf(jobs)
		for i, other := range row[1:] {
			ids[i] = cmp.Or(textOf(other), ids[i])
		}
		return ids, nil
	}
	if len(row) >= 3 {
		if place, _ := row[1].(int64); place >= 1 && place <= int64(len(jobs)) {
			job := jobs[place-1]
			switch row[0] {
			case "full":
				return nil, &QueueFullError{job.queue, job.limit}
			case "duplicate":
				return nil, &DuplicateError{textOf(row[2])}
			case "batch":
				return nil, &BatchError{job.batch, textOf(row[2])}
			}
		}
	}
	return nil, fmt.Errorf("pyworkers: push.lua answered %v: it is of another version", reply)
}
