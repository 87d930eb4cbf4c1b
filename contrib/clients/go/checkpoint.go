package pyworkers

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"time"
)

const (
	// The time between two writes of a value at least, and how long it is kept after its last change, in seconds.
	savedApart   = time.Second
	savedFor     = 30 * 86400
	longestSaved = 512 << 10
)

// Checkpoint is how far a long job is. Python has the same: the job may continue in either language.
type Checkpoint[T any] struct {
	// Value is the last saved one.
	Value   T
	ctx     context.Context
	message *Message // nil outside of a job
}

// OpenCheckpoint is the checkpoint of the job that runs with this context. Its value is what the job has saved, also in an
// earlier run; before that it is start. Outside of a job, nothing is stored.
//
//	at, err := pyworkers.OpenCheckpoint(ctx, 0)
//	if err != nil {
//		return struct{}{}, err
//	}
//	for page := at.Value; page < pages; page++ {
//		export(page)
//		if err := at.Save(page + 1); err != nil {
//			return struct{}{}, err
//		}
//	}
//
// Redis has the value until the job ends: a run after a stop, a failure or a crash continues from it. The error is one of
// [Checkpoint.Save], or that Redis cannot be reached, or that the value is no T.
func OpenCheckpoint[T any](ctx context.Context, start T) (*Checkpoint[T], error) {
	message := CurrentMessage(ctx)
	if message == nil || !isPrintable(message.ID) {
		return &Checkpoint[T]{start, ctx, nil}, nil
	}
	text, err := message.saved()
	if err == nil && text != nil {
		var last T
		if err = json.Unmarshal(text, &last); err != nil {
			err = fmt.Errorf("the checkpoint of the job %s cannot be read as %T: %w", message.ID, start, err)
		}
		start = last
	}
	if err != nil {
		return nil, err
	}
	return &Checkpoint[T]{start, ctx, message}, message.due(ctx)
}

// Save saves how far the job is. It is cheap: at most one value a second is written, and the last one when the run ends. So
// after a crash, at most a second is done twice.
//
// With an error the job is to end, and the error is the cause of the end of its context: at a stop [ErrStopping], at once
// and not after the grace. Or it is an [ArgumentError], for a value that JSON cannot hold, or larger than 512 KiB.
func (c *Checkpoint[T]) Save(value T) error {
	text, err := encode(value, "value")
	if err != nil {
		return err
	}
	if len(text) > longestSaved {
		return &ArgumentError{"value", fmt.Sprintf("has %d bytes as JSON; the limit is %d", len(text), longestSaved), nil}
	}
	c.Value = value
	if c.message == nil {
		return nil
	}
	c.message.save(text)
	return c.message.due(c.ctx)
}

// saving is the checkpoint of one run, as Sidekiq stores the checkpoint of an iterable job.
type saving struct {
	sync.Mutex
	isOpen      bool
	text        []byte // the last value; nil without one
	unwritten   bool   // Redis has an older one
	began, next time.Time
	runs        int // before this one, with their seconds
	seconds     float64
}

// saved is the last value of the job; the first call reads it.
func (m *Message) saved() ([]byte, error) {
	c := &m.delivery.saving
	c.Lock()
	defer c.Unlock()
	if c.isOpen {
		return c.text, nil
	}
	replies, err := m.server.client.send(m.delivery.ctx, []any{"HMGET", m.server.client.key("it-", m.ID), "c", "ex", "rt"})
	if err != nil {
		return nil, err
	}
	texts := textsOf(replies[0], 3)
	if text := []byte(texts[0]); json.Valid(text) {
		c.text = text
	}
	c.runs, _ = asCount([]byte(texts[1]))
	c.seconds, _ = asSeconds([]byte(texts[2]))
	c.isOpen, c.began = true, time.Now()
	return c.text, nil
}

// save has the value written, now or later.
func (m *Message) save(text []byte) {
	c := &m.delivery.saving
	c.Lock()
	defer c.Unlock()
	c.text, c.unwritten = text, true
	if now := time.Now(); now.After(c.next) {
		c.next, c.unwritten = now.Add(savedApart), false
		m.server.note(m.delivery, c.store(m.ID))
	}
}

// due is why the job is to end; nil if it goes on.
func (m *Message) due(ctx context.Context) error {
	select {
	case <-m.server.quit:
		m.delivery.cancel(ErrStopping)
	default:
	}
	return context.Cause(ctx)
}

func (c *saving) store(id string) effect {
	ran := c.seconds + time.Since(c.began).Seconds()
	return storeHash("StoreIteration", "it-"+id, savedFor, map[string]string{
		"c": string(c.text), "ex": strconv.Itoa(c.runs + 1), "rt": strconv.FormatFloat(ran, 'f', 3, 64),
	})
}

// end adds to an outcome what becomes of the value, and marks a job that is retried: whichever server ends it deletes the
// value.
func (c *saving) end(job *stored, o *outcome) {
	c.Lock()
	defer c.Unlock()
	isMarked := job.members.get("checkpoint") != nil
	switch final := isFinal(endingOf(o)); {
	case final && !isMarked && (c.text != nil || o.fate == isCancelled):
		o.effects = append(o.effects, effect{"DeleteIteration", []string{"it-" + job.id}, nil})
	case !final && c.unwritten:
		o.effects = append(o.effects, c.store(job.id))
	}
	if c.isOpen && !isMarked && o.fate == isRetried {
		o.payload = append(o.payload[:len(o.payload)-1], `,"checkpoint":true}`...)
	}
}
