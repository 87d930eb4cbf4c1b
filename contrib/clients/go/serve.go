package pyworkers

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// ServeOptions are the options of [Serve].
type ServeOptions struct {
	// Concurrency is the number of jobs that run at once; by default 25.
	Concurrency int
	// Grace is how long running jobs may go on after the end of the context of Serve; by default 25 seconds. Then their own
	// contexts end, and two seconds later those that still run are given back to their queues.
	Grace time.Duration
	// Lease is how long other servers wait, after the last sign of life of this one, before they run its jobs; by default
	// 30 seconds. It is at least 1 second.
	Lease time.Duration
	// Queues are the rules of queues that are ordered or have limits, by their names.
	Queues map[string]QueueOptions
	// Logger gets one line for each job, and what goes wrong; by default [slog.Default].
	Logger *slog.Logger
}

// Serve takes jobs of the queues of the handlers, runs each one in a goroutine, and settles it, until ctx ends. Then it
// takes no more jobs, waits for those that run, for up to Grace, gives the others back, and returns nil.
//
//	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
//	defer stop()
//	err := pyworkers.Serve(ctx, client, pyworkers.ServeOptions{}, pyworkers.HandleFunc("mail", "send", send))
//
// A job runs at least once: it stays in an in-progress list until its outcome is in Redis, and if this process dies, any
// server of pyworkers runs it again. It is retried by Sidekiq's rules. Unique jobs, batches, chains, statuses and results
// work as with servers in Python. Serve moves no jobs that are due, and watches no other servers: at least one server in
// Python has to run on the same Redis, on any queue. A queue that is ordered or has limits there needs the same in Queues
// or Limits: otherwise Serve returns an error or, if that server starts later, takes no jobs of the queue while it is there.
//
// The error says that an argument is wrong, or that Redis could not be reached at the start or, with outcomes that are not
// settled, at the stop; the jobs of these run again. In between, Serve waits for Redis.
func Serve(ctx context.Context, client *Client, options ServeOptions, handlers ...Handler) error {
	s, err := newServer(client, options, handlers)
	if err != nil {
		return err
	}
	return s.serve(ctx)
}

const (
	defaultConcurrency = 25
	defaultGrace       = 25 * time.Second
	defaultLease       = 30 * time.Second
	shortestLease      = time.Second
	// How long a job may clean up when it was asked to end.
	cleanUp = 2 * time.Second
	// How long outcomes are sent again at a stop while Redis cannot be reached.
	lastTries = 10 * time.Second
)

var (
	exchangeScript   = newScript("exchange")
	renewScript      = newScript("renew")
	deregisterScript = newScript("deregister")
)

// server is one call of Serve.
type server struct {
	client   *Client
	options  ServeOptions
	log      *slog.Logger
	handlers map[string]map[string]*Handler
	queues   []string
	worker   string // HOST:PID
	started  time.Time
	noted    time.Time    // when the versions of the wire were; for the heartbeat alone
	offset   atomic.Int64 // nanoseconds by which the clock of Redis is ahead

	base     context.Context // of all jobs; it does not end
	turn     chan struct{}   // held by the suspect that runs
	lapse    *time.Timer     // fires shortly before the lease ends
	jobs     chan *delivery
	wake     chan struct{} // there is something for the exchange loop
	quit     chan struct{} // closed when the worker begins to stop
	quitting sync.Once
	ended    chan struct{} // closed when no job of this worker runs any more
	alive    chan struct{} // closed when the loops of signs of life are to end

	mu        sync.Mutex
	mine      *incarnation
	outbox    []*settlement
	running   map[*delivery]struct{}
	cancelled map[string]bool
	forgotten []any // ids of cancelled jobs that have ended, whose notes are to be removed
	paused    map[string]bool
	barred    map[string]bool // by the rules of other servers
	counts    tally
	quiet     bool
	stopsAt   time.Time
	quick     int // jobs that ended since the last exchange, if each took a few ms at most
	slow      bool
}

// incarnation is one identity, with its lease.
type incarnation struct {
	identity   string
	registered bool
	lost       bool
}

// delivery is a job that was taken.
type delivery struct {
	mine    *incarnation
	queue   string
	raw     string
	job     *stored // nil until it is read
	ctx     context.Context
	cancel  context.CancelCauseFunc
	started time.Time
	limit   time.Time
	began   atomic.Bool
	fence   int64
	// The effects of limits, at the start and at the end.
	starts, ends []effect
	ended        bool // guarded by server.mu
	number       uint64
	saving       saving
}

// settlement is an outcome, or a note, for the exchange.
type settlement struct {
	delivery *delivery
	outcome  *outcome
}

func newServer(client *Client, options ServeOptions, handlers []Handler) (*server, error) {
	if len(handlers) == 0 {
		return nil, errors.New("pyworkers: Serve needs a handler")
	}
	if options.Concurrency < 0 || options.Grace < 0 || options.Lease != 0 && options.Lease < shortestLease {
		return nil, &ArgumentError{"ServeOptions", "have a number or time below 0, or a Lease below 1 s", nil}
	}
	options.Concurrency = cmp.Or(options.Concurrency, defaultConcurrency)
	options.Grace, options.Lease = cmp.Or(options.Grace, defaultGrace), cmp.Or(options.Lease, defaultLease)
	s := &server{
		client: client, options: options, log: cmp.Or(options.Logger, slog.Default()), started: time.Now(),
		handlers: make(map[string]map[string]*Handler), running: make(map[*delivery]struct{}),
		turn: make(chan struct{}, 1), wake: make(chan struct{}, 1), quit: make(chan struct{}), ended: make(chan struct{}), alive: make(chan struct{}),
		counts: newTally(), worker: fmt.Sprintf("%s:%d", hostName(), os.Getpid()),
	}
	for _, handler := range handlers {
		if err := handler.check(); err != nil {
			return nil, err
		}
		classes := s.handlers[handler.queue]
		if classes == nil {
			classes = make(map[string]*Handler)
			s.handlers[handler.queue] = classes
			s.queues = append(s.queues, handler.queue)
		}
		if classes[handler.class] != nil {
			return nil, fmt.Errorf("pyworkers: two handlers for the class %q of the queue %q", handler.class, handler.queue)
		}
		classes[handler.class] = &handler
	}
	for queue, rules := range options.Queues {
		if s.handlers[queue] == nil {
			return nil, fmt.Errorf("pyworkers: Queues has the queue %q, which has no handler", queue)
		}
		if err := rules.check(queue); err != nil {
			return nil, err
		}
	}
	s.mine = s.newIncarnation()
	return s, nil
}

func hostName() string {
	name, err := os.Hostname()
	if err != nil {
		return "localhost"
	}
	return strings.ToValidUTF8(name, "?")
}

func (s *server) newIncarnation() *incarnation {
	var nonce [6]byte
	_, _ = rand.Read(nonce[:]) // never fails
	return &incarnation{identity: s.worker + ":" + hex.EncodeToString(nonce[:])}
}

// now are epoch seconds by the clock of Redis.
func (s *server) now() float64 { return seconds(time.Now().Add(time.Duration(s.offset.Load()))) }

func (s *server) serve(ctx context.Context) error {
	if err := s.readClock(ctx); err != nil {
		return err
	}
	if err := s.checkRules(ctx); err != nil {
		return err
	}
	s.lapse = time.AfterFunc(s.options.Lease, s.endFenced)
	defer s.lapse.Stop()
	if err := s.renew(ctx); err != nil {
		return err
	}
	s.jobs = make(chan *delivery, 8*s.options.Concurrency+8*len(s.queues))
	s.base = context.WithoutCancel(ctx)
	for range s.options.Concurrency {
		go s.work() // not awaited: a job that does not end is given back
	}
	var loops sync.WaitGroup
	loops.Go(func() { s.repeat(s.options.Lease/6, "lease", s.renew) })
	loops.Go(func() { s.repeat(time.Second, "remote", s.follow) })
	loops.Go(func() { s.repeat(markedApart, "remote", s.endMarked) })
	loops.Go(func() { s.repeat(beatEvery, "heartbeat", s.beat) })
	loops.Go(func() { s.repeat(beatEvery, "rules", s.checkRules) })
	exchanged := make(chan error, 1)
	go func() { exchanged <- newExchanger(s).loop() }()

	s.log.Info("server.started", "identity", s.identity(), "queues", s.queues, "concurrency", s.options.Concurrency)
	select {
	case <-ctx.Done():
	case <-s.quit: // a TERM of Sidekiq's Web UI
	}
	s.stop()
	close(s.ended)
	s.signal()
	err := <-exchanged
	close(s.alive)
	loops.Wait()
	close(s.jobs)
	if err == nil {
		err = s.deregister(s.base)
	}
	s.log.Info("server.stopped", "identity", s.identity())
	return err
}

func (s *server) identity() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mine.identity
}

// work is the loop of one of the goroutines that run jobs.
func (s *server) work() {
	for d := range s.jobs {
		if s.begin(d) {
			found := s.perform(d)
			if s.finish(d, found) {
				s.report(d, found)
			}
			d.cancel(nil)
		}
		s.signal()
	}
}

// begin is true if a job that was taken runs now; at a stop it returns to its queue.
func (s *server) begin(d *delivery) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopsAt.IsZero() {
		s.giveBack(d)
	}
	if d.ended || d.mine.lost {
		return false
	}
	d.started = time.Now()
	s.running[d] = struct{}{}
	return true
}

// giveBack returns a job that has not begun to its queue; s.mu is held.
func (s *server) giveBack(d *delivery) {
	if !d.ended && !d.mine.lost {
		d.ended = true
		s.outbox = append(s.outbox, &settlement{d, &outcome{fate: isGivenBack}})
	}
}

// pause waits; false if the job is to end before.
func (s *server) pause(d *delivery, limit time.Duration) bool {
	select {
	case <-s.quit:
		return false
	case <-d.ctx.Done():
		return false
	case <-time.After(limit):
		return true
	}
}

// finish hands the outcome of a job to the exchange; false if the job has ended otherwise.
func (s *server) finish(d *delivery, o *outcome) bool {
	elapsed := time.Since(d.started)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.running, d)
	if d.ended || d.mine.lost {
		return false
	}
	d.ended = true
	if strings.HasSuffix(d.raw, suspectMark) && o.fate != isGivenBack {
		o.effects = append(o.effects, forgetSuspect(d.raw))
	}
	o.effects = append(o.effects, d.ends...)
	settled := o
	if rules := s.options.Queues[d.queue]; rules.Ordered {
		settled = rules.inPlace(d, *o, s.now())
	}
	s.outbox = append(s.outbox, &settlement{d, settled})
	s.counts.add(d, o, elapsed)
	s.quick++
	s.slow = s.slow || elapsed > 5*time.Millisecond
	if o.fate == isCancelled {
		s.forgotten = append(s.forgotten, d.job.id)
	}
	return true
}

// note has effects applied while the job runs.
func (s *server) note(d *delivery, effects ...effect) {
	if len(effects) == 0 {
		return
	}
	s.mu.Lock()
	if !d.ended && !d.mine.lost {
		s.outbox = append(s.outbox, &settlement{d, &outcome{fate: isNoted, effects: effects}})
	}
	s.mu.Unlock()
	s.signal()
}

func (s *server) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *server) isCancelled(job *stored) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return cancels(s.cancelled, job)
}

// cancels says that a job, or the batch of which it is a member, is among those that are cancelled.
func cancels(cancelled map[string]bool, job *stored) bool {
	if len(cancelled) == 0 {
		return false
	}
	batch, err := job.members.text("batch")
	return cancelled[job.id] || err == nil && batch != "" && cancelled["batch:"+batch]
}

// report logs the end of a job.
func (s *server) report(d *delivery, o *outcome) {
	level, event := slog.LevelInfo, "job."+map[fate]string{
		isDone: "done", isRetried: "retry", isDead: "dead", isDropped: "dropped", isGivenBack: "given_back",
		isPutOff: "snoozed", isCancelled: "cancelled", isExpired: "expired", isGone: "limited",
	}[o.fate]
	switch {
	case o.failed || o.misfit:
		level = slog.LevelWarn
	case o.fate == isGone:
		level = slog.LevelDebug
	}
	if !s.log.Enabled(context.Background(), level) {
		return
	}
	about := []any{"queue", d.queue, "ms", time.Since(d.started).Milliseconds()}
	if d.job != nil {
		about = append(about, "jid", d.job.id, "job_class", d.job.class, "attempt", d.job.attempt())
	}
	if o.errClass != "" {
		about = append(about, "error", o.errClass+": "+o.errorText)
	}
	s.log.Log(context.Background(), level, event, about...)
}

// stop takes no more jobs, waits for those that run, and gives back those that do not end.
func (s *server) stop() {
	s.mu.Lock()
	s.quiet = true
	s.stopsAt = time.Now().Add(s.options.Grace + cleanUp)
	s.mu.Unlock()
	s.quitOnce()
	s.log.Info("server.stopping", "grace_s", s.options.Grace.Seconds())
	if s.waitIdle(s.options.Grace) {
		return
	}
	s.endRunning(ErrStopping, 0)
	if s.waitIdle(cleanUp) {
		return
	}
	s.mu.Lock()
	left := slices.Collect(maps.Keys(s.running))
	s.mu.Unlock()
	for _, d := range left {
		back := &outcome{fate: isGivenBack}
		if d.began.Load() { // its job was read by then
			back = s.withEnd(d, givenBack(d.job, true), nil, "")
		}
		if s.finish(d, back) {
			s.log.Warn("job.left", "queue", d.queue, "ms", time.Since(d.started).Milliseconds())
		}
	}
	s.signal()
}

func (s *server) quitOnce() {
	s.quitting.Do(func() { close(s.quit) })
	s.signal()
}

// waitIdle waits until no job runs; false if some still do at the end of the time.
func (s *server) waitIdle(limit time.Duration) bool {
	for deadline := time.Now().Add(limit); ; time.Sleep(5 * time.Millisecond) {
		s.mu.Lock()
		idle := len(s.running) == 0
		s.mu.Unlock()
		if idle || time.Now().After(deadline) {
			return idle
		}
	}
}

// endRunning asks running jobs to end: all of them, or those with a fencing token from a number on.
func (s *server) endRunning(cause error, fence int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for d := range s.running {
		if d.fence >= fence {
			d.cancel(cause)
		}
	}
}

// endFenced ends the jobs of ordered queues before another server may run the next one.
func (s *server) endFenced() { s.endRunning(ErrLeaseLost, 1) }

// lose begins with another identity: a peer has recovered the jobs of this one, and runs them again.
func (s *server) lose(lost *incarnation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if lost != s.mine {
		return
	}
	lost.lost = true
	s.mine = s.newIncarnation()
	for d := range s.running {
		d.cancel(ErrLeaseLost)
	}
	s.outbox = slices.DeleteFunc(s.outbox, func(o *settlement) bool { return o.delivery.mine == lost })
	s.log.Error("lease.lost", "identity", lost.identity, "now", s.mine.identity)
}
