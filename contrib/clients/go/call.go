package pyworkers

import (
	"context"
	"encoding/json"
	"reflect"
	"strings"
	"time"
)

// Function is a job of an application with the types of its arguments and of its result. [Call] makes it.
type Function[In, Out any] struct {
	client *Client
	job    Job
}

// Handle is a job that was enqueued, with the type of its result.
type Handle[Out any] struct {
	ID     string
	client *Client
}

// Arguments is implemented by types that say themselves what the arguments of a job are.
type Arguments interface{ Args() []any }

// Call is the function in Python that class names, with its types:
//
//	charge := pyworkers.Call[Order, Receipt](client, "payments", "charge", pyworkers.Options{})
//	job, err := charge.Enqueue(ctx, Order{ID: 7})
//	receipt, err := job.Result(ctx)
//
// The exported fields of a struct In are the arguments, in their order; those at the end that are zero and have omitempty
// or omitzero in their json tag are left to their defaults in Python. Arguments overrides that, and any other type is the
// only argument. Without Track, the result is kept for an hour.
func Call[In, Out any](client *Client, queue, class string, options Options) *Function[In, Out] {
	if options.Track == 0 {
		options.Track = time.Hour
	}
	return &Function[In, Out]{client, Job{Queue: queue, Class: class, Options: options}}
}

// With is the same function with other options.
func (f *Function[In, Out]) With(options Options) *Function[In, Out] {
	return Call[In, Out](f.client, f.job.Queue, f.job.Class, options)
}

// Enqueue enqueues a call of the function.
func (f *Function[In, Out]) Enqueue(ctx context.Context, in In) (Handle[Out], error) {
	id, err := f.client.Enqueue(ctx, f.Job(in))
	return Handle[Out]{id, f.client}, err
}

// Job is the call as a job: for EnqueueMany, a batch, a chain or a callback.
func (f *Function[In, Out]) Job(in In) Job {
	job := f.job
	job.Args = argsOf(in)
	return job
}

// Result waits for what the function returns, as [Client.Result].
func (h Handle[Out]) Result(ctx context.Context) (Out, error) {
	var out Out
	err := h.client.Result(ctx, h.ID, &out)
	return out, err
}

// Status is the status of the job.
func (h Handle[Out]) Status(ctx context.Context) (Status, error) { return h.client.Status(ctx, h.ID) }

// Cancel cancels the job, as [Client.Cancel].
func (h Handle[Out]) Cancel(ctx context.Context) (Cancellation, error) {
	return h.client.Cancel(ctx, h.ID)
}

func argsOf(in any) []any {
	if own, ok := in.(Arguments); ok {
		return own.Args()
	}
	value := reflect.ValueOf(in)
	if _, writesItself := in.(json.Marshaler); writesItself || value.Kind() != reflect.Struct {
		return []any{in}
	}
	places, kept := argumentFields(value.Type())
	args := make([]any, len(places))
	for i, place := range places {
		args[i] = value.Field(place).Interface()
		if !value.Field(place).IsZero() {
			kept = max(kept, i+1)
		}
	}
	return args[:kept]
}

// argumentFields are the places of the fields of a struct that are arguments, and how many of them a call has at least:
// those at the end that have omitempty or omitzero may be missing.
func argumentFields(kind reflect.Type) (places []int, least int) {
	for i := range kind.NumField() {
		name, tag, _ := strings.Cut(kind.Field(i).Tag.Get("json"), ",")
		if !kind.Field(i).IsExported() || name == "-" && tag == "" {
			continue
		}
		places = append(places, i)
		if !strings.Contains(tag, "omit") {
			least = len(places)
		}
	}
	return places, least
}
