package pyworkers

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

var batchScript = newScript("batch")

// BatchOptions are the callbacks of a batch or chain: jobs that are pushed once, when their event occurs.
type BatchOptions struct {
	// ID is the id of the batch; by default a random one. A callback may have it among its arguments.
	ID          string
	Description string
	// Tags are texts by which people find the batch.
	Tags []string
	// OnComplete follows when each member ran at least once, OnSuccess when all are done, and OnDeath when the first
	// one ended that is not done. OnCancel follows when the batch is cancelled.
	OnComplete, OnSuccess, OnDeath, OnCancel *Job
	// IgnoreMissing leaves out members that were cancelled or deleted, that expired, or that are missing.
	IgnoreMissing bool
}

// Batch is a batch or a chain.
type Batch struct {
	ID     string
	client *Client
	hold   string
}

// OpenBatch makes a batch. Its members are added by [Batch.Enqueue], and no callback fires before [Batch.Close]; a batch
// that is never closed expires.
func (c *Client) OpenBatch(ctx context.Context, options BatchOptions) (*Batch, error) {
	call, err := c.newBatch(options)
	if err != nil {
		return nil, err
	}
	batch := &Batch{call.id, c, newID()}
	call.put = batch.hold
	return batch, c.enlist(ctx, call)
}

// EnqueueBatch makes a batch of jobs: in one round trip, all or nothing, for up to a thousand jobs without conditions that
// have less than 16 MB. With others, or more of them, an error leaves the batch open with those members that were pushed
// before; without any, after a [DuplicateError] or [QueueFullError], there is no batch.
func (c *Client) EnqueueBatch(ctx context.Context, options BatchOptions, jobs ...Job) (*Batch, error) {
	call, err := c.newBatch(options)
	if err != nil {
		return nil, err
	}
	m := c.making()
	m.batch = call.id
	made, err := m.envelopes(jobs)
	if err != nil {
		return nil, err
	}
	batch := &Batch{ID: call.id, client: c}
	if len(portions(made)) <= 1 && !slices.ContainsFunc(made, (*envelope).isConditional) {
		call.add(made...)
		return batch, c.enlist(ctx, call)
	}
	batch.hold = newID()
	call.put = batch.hold
	if err := c.enlist(ctx, call); err != nil {
		return nil, err
	}
	ids, err := c.pushAll(ctx, made)
	if err == nil {
		return batch, batch.Close(ctx)
	}
	_, isDuplicate := errors.AsType[*DuplicateError](err)
	_, isFull := errors.AsType[*QueueFullError](err)
	if len(ids) == 0 && (isDuplicate || isFull) && c.enlist(ctx, &enlisting{id: batch.ID, mode: "delete"}) == nil {
		return nil, err
	}
	return batch, err
}

// Batch is the batch or chain with this id. Nothing is sent.
func (c *Client) Batch(id string) *Batch { return &Batch{ID: id, client: c} }

// Open opens a batch again, so that no callback fires while members are added.
func (b *Batch) Open(ctx context.Context) error {
	hold := newID()
	if err := b.client.enlist(ctx, &enlisting{id: b.ID, mode: "open", put: hold}); err != nil {
		return err
	}
	b.hold = hold
	return nil
}

// Enqueue adds jobs to the batch, as [Client.EnqueueMany]. A duplicate that is skipped is no member. The error is a
// [BatchError] if all members are done and the batch is not open.
func (b *Batch) Enqueue(ctx context.Context, jobs ...Job) ([]string, error) {
	m := b.client.making()
	m.batch = b.ID
	made, err := m.envelopes(jobs)
	if err != nil {
		return nil, err
	}
	return b.client.pushAll(ctx, made)
}

// Close lets the callbacks fire: at once, if the members have ended, or if there are none.
func (b *Batch) Close(ctx context.Context) error {
	if b.hold == "" {
		return errors.New("pyworkers: the batch " + b.ID + " is not open")
	}
	return b.client.enlist(ctx, &enlisting{id: b.ID, mode: "add", release: b.hold})
}

// Result waits for the end of the batch, as [Client.Result]; of a chain, result is what the last step returned. The error is
// a [BatchError] for an unknown one.
func (b *Batch) Result(ctx context.Context, result any) error {
	status, err := b.Status(ctx)
	if err != nil {
		return err
	}
	return b.client.result(ctx, b.ID, status.Kind, result)
}

// BatchStatus are the numbers and times of a batch. Times are zero if they are still to come.
type BatchStatus struct {
	Description string
	Tags        []string
	// Kind is batch, chain or group.
	Kind string
	// Open is true while members are added.
	Open bool
	// Total is the number of members; Pending have not ended, and Failed of these wait for a retry.
	Total, Pending, Done, Failed, Dead int
	// These have ended, are not done, and are not kept.
	Dropped, Cancelled, Deleted, Expired, Missing, Skipped int
	CreatedAt, CompleteAt, SuccessAt, DeathAt              time.Time
}

// Status reads the numbers of the batch. The error is a [BatchError] for an unknown one.
func (b *Batch) Status(ctx context.Context) (BatchStatus, error) {
	status, err := b.look(ctx)
	if _, isUnknown := errors.AsType[*BatchError](err); isUnknown {
		b.client.leave(ctx)
		status, err = b.look(ctx)
	}
	return status, err
}

func (b *Batch) look(ctx context.Context) (BatchStatus, error) {
	key := b.client.own("batch:", b.ID)
	names := []any{"description", "kind", "open", "total", "done", "dropped", "cancelled", "deleted", "expired", "missing",
		"skipped", "created_at", "complete_at", "success_at", "death_at", "tags"}
	replies, err := b.client.send(ctx, append([]any{"HMGET", key}, names...),
		[]any{"SCARD", key + ":members"}, []any{"SCARD", key + ":failed"}, []any{"SCARD", key + ":dead"})
	if err != nil {
		return BatchStatus{}, err
	}
	facts := make(map[any]string)
	for i, text := range textsOf(replies[0], len(names)) {
		facts[names[i]] = text
	}
	if facts["open"] == "" {
		return BatchStatus{}, &BatchError{b.ID, "unknown"}
	}
	count := func(name string) int {
		number, _ := strconv.Atoi(facts[name])
		return number
	}
	size := func(part int) int {
		number, _ := replies[part].(int64)
		return int(number)
	}
	holds, failed := count("open"), size(2)
	status := BatchStatus{
		Description: facts["description"], Kind: cmp.Or(facts["kind"], "batch"), Open: holds > 0,
		Total: count("total"), Pending: size(1) - holds + failed, Done: count("done"), Failed: failed, Dead: size(3),
		Dropped: count("dropped"), Cancelled: count("cancelled"), Deleted: count("deleted"), Expired: count("expired"),
		Missing: count("missing"), Skipped: count("skipped"),
		CreatedAt: readTime(facts["created_at"]), CompleteAt: readTime(facts["complete_at"]),
		SuccessAt: readTime(facts["success_at"]), DeathAt: readTime(facts["death_at"]),
	}
	if json.Unmarshal([]byte(facts["tags"]), &status.Tags) != nil { // none, or another program has written something else
		status.Tags = nil
	}
	return status, nil
}

// Result is, among the arguments of a step of a chain, what the step before returned.
var Result = resultOfStep{}

type resultOfStep struct{}

// MarshalJSON writes a mark, which becomes a place to be filled.
func (resultOfStep) MarshalJSON() ([]byte, error) { return resultMark, nil }

// A job carries the steps after it.
const mostSteps = 1000

// EnqueueChain pushes jobs that run one after the other: each carries the steps after it, and [Result] among its arguments
// is what the one before returned. All of it is one round trip, or nothing.
func (c *Client) EnqueueChain(ctx context.Context, options BatchOptions, steps ...Job) (*Batch, error) {
	if len(steps) == 0 || len(steps) > mostSteps {
		return nil, &ArgumentError{"steps", "are 1 to 1000 jobs", nil}
	}
	call, err := c.newBatch(options)
	if err != nil {
		return nil, err
	}
	call.fields = append(call.fields, "kind", "chain")
	var first *envelope
	var following [][]byte
	for i := range steps {
		m := c.making()
		m.batch, m.role = call.id, step
		if i == 0 {
			m.role = firstStep
		}
		m.isLast = i == len(steps)-1
		made, err := m.envelope(&steps[i])
		if err != nil {
			return nil, fieldError("steps", i, err)
		}
		call.members = append(call.members, made.id)
		if i == 0 {
			first = made
		} else {
			following = append(following, made.payload)
		}
	}
	if len(following) > 0 {
		head, _ := bytes.CutSuffix(first.payload, []byte("}"))
		first.payload = slices.Concat(head, []byte(`,"then":{"v":2,"steps":[`), bytes.Join(following, []byte(",")), []byte("]}}"))
	}
	if len(first.payload) > maxBytes {
		return nil, tooLarge(len(first.payload))
	}
	call.jobs = []*envelope{first}
	return &Batch{ID: call.id, client: c}, c.enlist(ctx, call)
}

// enlisting is one call of batch.lua, which describes it.
type enlisting struct {
	id, mode, put, release string
	fields                 []any
	members                []any
	jobs                   []*envelope
}

func (e *enlisting) add(jobs ...*envelope) {
	e.jobs = jobs
	for _, job := range jobs {
		e.members = append(e.members, job.id)
	}
}

// newBatch is the call that makes a batch.
func (c *Client) newBatch(options BatchOptions) (*enlisting, error) {
	call := &enlisting{id: options.ID, mode: "create"}
	if call.id == "" {
		call.id = newID()
	}
	if !isPrintable(call.id) || strings.ContainsAny(call.id, ` "\`) {
		return nil, &ArgumentError{"ID", "of a batch is a text without blanks, quotes and backslashes", nil}
	}
	// The result of the batch may be asked for.
	call.fields = []any{"answer", "1", "description", options.Description}
	if slices.Contains(options.Tags, "") {
		return nil, &ArgumentError{"Tags", "of a batch are texts that are not empty", nil}
	}
	if len(options.Tags) > 0 {
		tags, err := encode(options.Tags, "Tags")
		if err != nil {
			return nil, err
		}
		call.fields = append(call.fields, "tags", tags)
	}
	if options.IgnoreMissing {
		call.fields = append(call.fields, "if_missing", "ignore")
	}
	m := c.making()
	m.role = callback
	for _, event := range []struct {
		name string
		job  *Job
	}{{"on_complete", options.OnComplete}, {"on_success", options.OnSuccess}, {"on_death", options.OnDeath}, {"on_cancel", options.OnCancel}} {
		if event.job == nil {
			continue
		}
		made, err := m.envelope(event.job)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", event.name, err)
		}
		// The script would replace this text by a result, unless the places of the results, which are none, come first.
		places := ""
		if bytes.Contains(made.payload, []byte(`{"pyworkers":"RESULTS"}`)) {
			places = "- "
		}
		call.fields = append(call.fields, event.name, made.queue+" "+places+string(made.payload))
	}
	return call, nil
}

func (c *Client) enlist(ctx context.Context, call *enlisting) error {
	keys := []string{c.key("queues"), c.key("schedule"), c.own("batches")}
	args := []any{call.id, call.mode, call.put, call.release, len(call.fields) / 2, 0, len(call.members)}
	args = append(append(args, call.fields...), call.members...)
	queues, parts := byQueue(call.jobs)
	for _, name := range queues {
		place := 2
		if name != "" {
			keys = append(keys, c.key("queue:", name))
			place = len(keys)
		}
		args = append(append(args, name, place, len(parts[name])), parts[name]...)
	}
	reply, err := c.run(ctx, batchScript, keys, append(args, c.ns))
	if err == nil && reply != "ok" {
		err = &BatchError{call.id, textOf(reply)}
	}
	return err
}
