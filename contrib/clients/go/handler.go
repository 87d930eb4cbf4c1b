package pyworkers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
)

// Handler runs the jobs of one class of a queue. [HandleFunc] makes it, [Serve] uses it.
type Handler struct {
	queue, class string
	options      HandlerOptions
	// bind reads the arguments, and returns the run with them.
	bind func([]json.RawMessage) (func(context.Context) (any, error), error)
}

// HandlerOptions are the options of the jobs of a handler. An option that the job itself has counts instead.
type HandlerOptions struct {
	// Retry is Yes for 25 retries, which is the default, No to drop a failed job, or Count(n).
	Retry Setting
	// RetryFor is how long a job is retried, instead of a number of retries.
	RetryFor time.Duration
	// RetryIn is the time until the next retry, by the number of earlier failures and the error; Sidekiq's if it is nil.
	RetryIn func(attempt int, err error) time.Duration
	// Dead is No to drop a job whose retries are used up.
	Dead Setting
	// Backtrace are the lines to keep of the stack of a panic: Yes, No or Count(n). Other errors have none.
	Backtrace Setting
	// Timeout is how long a job may run; then its context ends, and an error that it returns is a JobTimeout.
	Timeout time.Duration
	// Limits decide when a job may start; all servers count them together. A job that may not start yet waits in schedule.
	Limits []Limit
}

// The causes with which the context of a running job ends, for [context.Cause].
var (
	// ErrCancelled: the job was cancelled. An error that it returns now ends it as cancelled.
	ErrCancelled = errors.New("pyworkers: the job was cancelled")
	// ErrStopping: the worker stops, and its grace has ended; a [Checkpoint] has it at once. With an error, the job returns to
	// its queue.
	ErrStopping = errors.New("pyworkers: the worker is stopping")
	// ErrLeaseLost: other servers counted this one as dead, and run its jobs again. Nothing that the job returns counts. A
	// job of an ordered queue ends with it before the lease does, and returns to its queue if no other server has it.
	ErrLeaseLost = errors.New("pyworkers: the lease was lost, so another server runs the job again")
	// ErrTimeout: the job has used up its time.
	ErrTimeout = errors.New("pyworkers: the job has used up its time")
)

// HandleFunc is the handler of the jobs of a class in a queue, with the types of their arguments and of their result:
//
//	pyworkers.HandleFunc("payments", "charge", func(ctx context.Context, order Order) (Receipt, error) { … })
//
// It takes what [Call] with the same types enqueues: the exported fields of a struct In are the arguments in their order,
// those at the end that have omitempty or omitzero in their json tag may be missing. [Args] are all arguments; any other
// type, also one with UnmarshalJSON, is the only one; struct{} is none. A job with other arguments is a misfit: other
// servers get it for an hour, as they get a job whose class no handler has.
//
// The result is kept if the job is tracked, or is a step or a member of a group. An error means a retry, as
// [HandlerOptions] and the job say; [RetryIn], [Kill], [Discard] and [Snooze] choose something else. A panic is an error.
//
// The context ends when the job is to end, with one of the causes [ErrCancelled], [ErrStopping], [ErrLeaseLost] and
// [ErrTimeout]. Nothing can end a goroutine from outside: a job that does not look at its context goes on.
func HandleFunc[In, Out any](queue, class string, run func(context.Context, In) (Out, error)) Handler {
	read := readerOf(reflect.TypeFor[In]())
	return Handler{queue: queue, class: class, bind: func(args []json.RawMessage) (func(context.Context) (any, error), error) {
		var in In
		err := read(args, reflect.ValueOf(&in).Elem())
		return func(ctx context.Context) (any, error) { return run(ctx, in) }, err
	}}
}

// With is the handler with options.
func (h Handler) With(options HandlerOptions) Handler {
	h.options = options
	return h
}

func (h Handler) check() error {
	if err := (&Job{Queue: h.queue, Class: h.class}).check(); err != nil {
		return err
	}
	o := h.options
	switch {
	case h.bind == nil:
		return errors.New("pyworkers: a Handler is made by HandleFunc")
	case !o.Retry.fits(true, true), !o.Backtrace.fits(true, true), !o.Dead.fits(true, false), o.Timeout < 0, o.RetryFor < 0:
		return &ArgumentError{"HandlerOptions of " + h.class, "have a number or time below 0, or a Dead that is a number", nil}
	}
	return checkLimits(h.class, o.Limits)
}

// namedError is an error with its own class: a panic, or the error of a result.
type namedError struct {
	class string
	err   error
}

func (e *namedError) Error() string { return e.err.Error() }

// Message is the job that runs.
type Message struct {
	ID, Queue, Class string
	// Attempt is the number of earlier failures.
	Attempt int
	// Batch is the id of the batch of which it is a member, or empty.
	Batch string
	// Fence is the fencing token of an ordered queue, which grows with each change of the active server; 0 in others.
	Fence int64

	server   *server
	delivery *delivery
}

type messageKey struct{}

// CurrentMessage is the message of the job that runs with this context; nil outside of a job.
func CurrentMessage(ctx context.Context) *Message {
	message, _ := ctx.Value(messageKey{}).(*Message)
	return message
}

// Field is the JSON text of a field of the job, as an application has added it (Options.Extra); nil without one.
func (m *Message) Field(name string) json.RawMessage {
	return bytes.Clone(m.delivery.job.members.get(name))
}

// Progress shows how far the job is, if it is tracked.
func (m *Message) Progress(progress Progress) error {
	if m.delivery.job.tracked() == 0 {
		return nil
	}
	text, err := encode([]any{progress.Done, progress.Total, cut(progress.Text, longestProgress)}, "progress")
	if err == nil {
		m.server.note(m.delivery, storeFields("job:"+m.ID, aliveSeconds, map[string]string{"progress": string(text)}))
	}
	return err
}

// perform runs a job that was taken, and returns its outcome; nil if the outcome does not count any more.
func (s *server) perform(d *delivery) *outcome {
	now := s.now()
	job, err := parseJob(d.raw, d.queue)
	if err != nil {
		return refused(d.raw, d.queue, err.Error(), now)
	}
	d.job = job
	if s.isCancelled(job) {
		return s.withEnd(d, &outcome{fate: isCancelled}, nil, "")
	}
	if job.hasExpired(now) {
		return s.withEnd(d, &outcome{fate: isExpired}, nil, "")
	}
	if strings.HasSuffix(d.raw, suspectMark) {
		instead, free := s.admit(d)
		if instead != nil {
			return instead
		}
		defer free()
	}
	handler := s.handlers[d.queue][job.class]
	if handler == nil {
		f := failure{class: unknownJob, message: fmt.Sprintf("no handler for the class %q of the queue %q", job.class, job.queue)}
		return s.withEnd(d, misfit(job, f, now), nil, "")
	}
	return s.call(d, handler)
}

// hasExpired is true if the job may not start any more. One that has started once does not expire.
func (job *stored) hasExpired(now float64) bool {
	raw := job.members.get("expiry")
	if len(raw) == 0 || raw[0] == '"' {
		return false
	}
	expiry, known := asTime(raw)
	if !known || expiry <= 0 || expiry > now || strings.HasSuffix(job.raw, suspectMark) {
		return false
	}
	for _, name := range []string{"retry_count", "retried_at", "crash_count"} {
		if job.members.get(name) != nil {
			return false
		}
	}
	_, hasFailed := job.firstFailure()
	return !hasFailed
}

// call calls the handler, and makes an outcome of what it returns.
func (s *server) call(d *delivery, handler *Handler) *outcome {
	job := d.job
	args, err := job.args(s.client.keys)
	switch {
	case err != nil:
		return s.withEnd(d, s.lacksKey(d, handler, err), nil, "")
	case job.truthy("encrypt"):
		return s.withEnd(d, failed(job, failure{class: "Kill", message: enterprise, fate: isDead}, &handler.options, s.now()), nil, "")
	}
	run, err, trace := protected(func() (func(context.Context) (any, error), error) { return handler.bind(args) })
	switch {
	case trace != nil:
		return s.returned(d, handler, nil, nil, err, trace)
	case err != nil:
		return s.withEnd(d, misfit(job, failure{class: badArgument, message: err.Error()}, s.now()), nil, "")
	}
	if limits := handler.options.Limits; len(limits) > 0 {
		instead, err, trace := protected(func() (*outcome, error) { return s.ask(d, limits, args), nil })
		switch {
		case err != nil: // of By
			return s.returned(d, handler, nil, nil, err, trace)
		case instead != nil:
			return instead
		}
	}
	limit := handler.options.Timeout
	if given, known := asSeconds(job.members.get("timeout")); known && given > 0 {
		limit = time.Duration(min(given, longestSeconds) * float64(time.Second))
	}
	ctx := d.ctx
	if limit > 0 {
		var free context.CancelFunc
		ctx, free = context.WithTimeoutCause(ctx, limit, ErrTimeout)
		defer free()
		d.limit = time.Now().Add(limit)
	}
	batch, _ := job.members.text("batch")
	message := &Message{job.id, d.queue, job.class, job.attempt(), batch, d.fence, s, d}
	if job.ruled() {
		d.starts = append(d.starts, starts(job, s.now(), s.worker)...)
	}
	s.note(d, d.starts...)
	d.began.Store(true)
	// What it returned has methods of the application, too: MarshalJSON, Error, Unwrap.
	found, err, trace := protected(func() (*outcome, error) {
		value, err := run(context.WithValue(ctx, messageKey{}, message))
		return s.returned(d, handler, context.Cause(ctx), value, err, nil), nil
	})
	if err != nil {
		found = s.returned(d, handler, context.Cause(ctx), nil, err, trace)
	}
	return found
}

// protected calls a function of the application, and makes an error of a panic.
func protected[T any](run func() (T, error)) (value T, err error, trace []string) {
	defer func() {
		if why := recover(); why != nil {
			trace = strings.Split(strings.TrimSpace(string(debug.Stack())), "\n")
			err = &namedError{panicked, fmt.Errorf("%v", why)}
		}
	}()
	value, err = run()
	return value, err, nil
}

// lacksKey is the outcome of a job whose arguments do not open here: it is retried, but never dropped for it, because
// another server may have the key.
func (s *server) lacksKey(d *delivery, handler *Handler, err error) *outcome {
	f := failure{class: keyMissing, message: err.Error()}
	found := failed(d.job, f, &handler.options, s.now())
	if found.fate == isDropped {
		found = misfit(d.job, f, s.now())
	}
	return found
}

// returned makes the outcome of what a handler returned.
func (s *server) returned(d *delivery, handler *Handler, cause error, value any, err error, trace []string) *outcome {
	job, now := d.job, s.now()
	var result []byte
	if err == nil && (job.tracked() > 0 || job.members.get("batch_index") != nil || job.members.get("then") != nil) {
		if result, err = encode(value, "result"); err == nil && len(result) > maxResult {
			err = fmt.Errorf("the result has %d bytes; the limit is %d", len(result), maxResult)
		}
		if err != nil {
			err = &namedError{badResult, err}
		}
	}
	if err == nil {
		return s.withEnd(d, &outcome{fate: isDone}, result, "")
	}
	return s.withEnd(d, s.decide(job, handler, cause, err, trace, now), nil, strings.Join(trace, "\n"))
}

// decide is the outcome of a handler that returned an error, perhaps after a request to end.
func (s *server) decide(job *stored, handler *Handler, cause, err error, trace []string, now float64) *outcome {
	var chosen *choice
	isChoice := errors.As(err, &chosen)
	switch {
	case cause == ErrCancelled:
		return &outcome{fate: isCancelled}
	case (cause == ErrStopping || cause == ErrLeaseLost) && !(isChoice && chosen.fate != isRetried):
		return givenBack(job, true)
	case isChoice && chosen.fate == isPutOff:
		return putOff(job, now+max(0, chosen.delay.Seconds()))
	}
	f := failure{class: classOf(err), message: err.Error(), trace: trace}
	if named, isNamed := err.(*namedError); isNamed {
		f.class = named.class
	}
	options := &handler.options
	switch {
	case cause == ErrTimeout && !isChoice:
		f.class = timeLimit
	case isChoice && chosen.fate == isRetried:
		f.delay = func() (time.Duration, bool) { return chosen.delay, true }
	case isChoice:
		f.fate = chosen.fate
	}
	if f.delay == nil && options.RetryIn != nil {
		f.delay = func() (time.Duration, bool) {
			delay, bad, _ := protected(func() (time.Duration, error) { return options.RetryIn(job.attempt(), err), nil })
			if bad != nil {
				s.log.Error("hook.failed", "hook", "RetryIn", "queue", job.queue, "jid", job.id, "error", bad)
			}
			return delay, bad == nil
		}
	}
	return failed(job, f, options, now)
}

// withEnd adds the effects of the end to an outcome. A job fails if what follows it is too large with its result.
func (s *server) withEnd(d *delivery, o *outcome, result []byte, trace string) *outcome {
	if d.job == nil {
		return o
	}
	d.saving.end(d.job, o)
	if !d.job.ruled() {
		return o
	}
	effects, err := ends(ended{d.job, endingOf(o), s.now(), o.errClass, o.errorText, trace, result})
	if err != nil {
		f := failure{class: badResult, message: err.Error()}
		return s.withEnd(d, failed(d.job, f, &s.handlers[d.queue][d.job.class].options, s.now()), nil, "")
	}
	o.effects = append(o.effects, effects...)
	return o
}

// stored is a job as Redis has it. Its bytes are never encoded again: what a retry writes is spliced from them, so that
// fields of other programs, and numbers of any size, keep their text.
type stored struct {
	raw       string
	members   members
	queue     string // from which it was taken
	id, class string
}

// parseJob reads the bytes of a job. The error is a badJob.
func parseJob(raw, queue string) (*stored, error) {
	found, err := parseMembers([]byte(raw))
	if err != nil {
		return nil, err
	}
	job := &stored{raw: raw, members: found, queue: queue}
	if job.class, err = job.members.text("class"); err != nil {
		return nil, err
	}
	if job.id, err = job.members.text("jid"); err != nil {
		return nil, err
	}
	if job.class == "" {
		return nil, badJob{fmt.Sprintf("a job of the queue %q has no class", queue)}
	}
	if job.id == "" {
		job.id = newID()
	}
	return job, nil
}

// args are the arguments: null is none, any other value that is no list is one.
func (job *stored) args(keys *Keyring) ([]json.RawMessage, error) {
	raw := job.members.get("args")
	if job.isSealed() {
		return job.open(items(raw), keys)
	}
	switch {
	case raw == nil || string(raw) == "null":
		return nil, nil
	case raw[0] == '[':
		return items(raw), nil
	}
	return []json.RawMessage{raw}, nil
}

func (job *stored) isSealed() bool { return string(job.members.get("encrypted")) == "true" }

func (job *stored) open(sealed []json.RawMessage, keys *Keyring) ([]json.RawMessage, error) {
	if keys == nil {
		return nil, &KeyError{"the arguments are encrypted, but there are no keys: Config.Keys has them"}
	}
	if len(sealed) != 1 || sealed[0][0] != '"' {
		return nil, &KeyError{"the job is marked as encrypted, but its arguments are not sealed"}
	}
	return keys.Open(unquoted(sealed[0]), job.id, job.class)
}

// attempt is the number of earlier failures: the field retry_count is 0 after the first one.
func (job *stored) attempt() int {
	if count, known := asCount(job.members.get("retry_count")); known {
		return count + 1
	}
	return 0
}

// rewritten is a time that is stored as text or as whole seconds, which some readers misread; others stay.
func rewritten(raw []byte) (float64, bool) {
	if len(raw) == 0 || raw[0] != '"' {
		number, err := strconv.ParseFloat(string(raw), 64)
		if err != nil || strings.ContainsAny(string(raw), ".eE") || math.Abs(number) >= 1e11 {
			return 0, false
		}
	}
	return asTime(raw)
}
