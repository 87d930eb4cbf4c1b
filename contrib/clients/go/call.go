package pyworkers

import (
	"context"
	"encoding/json"
	"fmt"
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

// Args are all arguments of a job, for a [HandleFunc] that takes any number of them.
type Args []json.RawMessage

// Text is the text of an argument, or its JSON if it is of another type; empty without one.
func (a Args) Text(i int) string {
	switch {
	case i >= len(a):
		return ""
	case a[i][0] == '"':
		return unquoted(a[i])
	}
	return string(a[i])
}

// readerOf makes the function that reads arguments into a value of a type.
func readerOf(kind reflect.Type) func([]json.RawMessage, reflect.Value) error {
	if kind == reflect.TypeFor[Args]() {
		return func(args []json.RawMessage, to reflect.Value) error {
			to.Set(reflect.ValueOf(Args(args)))
			return nil
		}
	}
	_, readsItself := reflect.New(kind).Interface().(json.Unmarshaler)
	if readsItself || kind.Kind() != reflect.Struct {
		return func(args []json.RawMessage, to reflect.Value) error {
			if len(args) != 1 {
				return fmt.Errorf("the handler takes 1 argument, and the job has %d", len(args))
			}
			return readArg(args[0], 0, to)
		}
	}
	places, least := argumentFields(kind)
	return func(args []json.RawMessage, to reflect.Value) error {
		if len(args) < least || len(args) > len(places) {
			return fmt.Errorf("the handler takes %d to %d arguments, and the job has %d", least, len(places), len(args))
		}
		for i, arg := range args {
			if err := readArg(arg, i, to.Field(places[i])); err != nil {
				return err
			}
		}
		return nil
	}
}

func readArg(arg json.RawMessage, i int, to reflect.Value) error {
	if err := json.Unmarshal(arg, to.Addr().Interface()); err != nil {
		return fmt.Errorf("args[%d] cannot be read as %s: %w", i, to.Type(), err)
	}
	return nil
}
