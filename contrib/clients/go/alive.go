package pyworkers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	beatEvery = 5 * time.Second
	// How long a worker without a heartbeat is shown, and its running jobs.
	shownFor, workFor = 90, 60
	// How long the note of the wire is kept, and how often it is written.
	wireFor   = 150
	wireEvery = time.Minute
	// The version of the effects that this package knows, as servers in Python count them.
	flowVersion   = 2
	statsFor      = 5 * 365 * 86400
	runsFor       = 2 * 3600
	shortMetrics  = 8 * 3600
	longMetrics   = 72 * 3600
	maxStackBytes = 1 << 20
	// The largest job that is shown with its arguments.
	maxShown = 16 << 10
	// How often Sidekiq reads whether cancel! has marked a running job (STATE_FLUSH_INTERVAL in its job/iterable.rb).
	markedApart = 5 * time.Second
)

// tally are the counters since the last beat: the names of stat:*, fields of pyworkers:runs:*, and of Sidekiq's metrics.
type tally struct{ stats, runs, classes map[string]int }

func newTally() tally {
	return tally{make(map[string]int), make(map[string]int), make(map[string]int)}
}

func (t tally) add(d *delivery, o *outcome, elapsed time.Duration) {
	switch {
	case o.misfit:
		t.stats["misfits"]++
	case o.fate == isCancelled:
		t.stats["cancelled"]++
	case o.fate == isExpired:
		t.stats["expired"]++
	case o.fate == isGivenBack && d.began.Load():
		t.stats["interrupted"]++
	}
	if !o.failed && o.fate != isDone {
		return
	}
	t.stats["processed"]++
	t.runs[d.queue+"|p"]++
	if o.failed {
		t.stats["failed"]++
		t.runs[d.queue+"|f"]++
	}
	if d.job == nil || o.misfit {
		return
	}
	class := strings.ReplaceAll(d.job.class, "|", "_")
	t.classes[class+"|p"]++
	if o.failed {
		t.classes[class+"|f"]++
	} else {
		t.classes[class+"|ms"] += int(elapsed.Milliseconds())
	}
}

// repeat calls look again and again, until the worker has stopped.
func (s *server) repeat(interval time.Duration, name string, look func(context.Context) error) {
	failing := false
	for {
		err := look(context.Background())
		if err != nil && !failing {
			s.log.Error(name+".failed", "error", err)
		}
		failing = err != nil
		select {
		case <-s.alive:
			return
		case <-time.After(interval):
		}
	}
}

// readClock measures by how much the clock of Redis is ahead.
func (s *server) readClock(ctx context.Context) error {
	before := time.Now()
	there, err := s.client.rdb.Time(ctx).Result()
	if err != nil {
		return translate(err)
	}
	s.offset.Store(int64(there.Sub(before.Add(time.Since(before) / 2))))
	return nil
}

// renew renews the lease; the first time, and if it is gone, by the script, which also registers the queues.
func (s *server) renew(ctx context.Context) error {
	s.mu.Lock()
	mine := s.mine
	known := mine.registered
	s.mu.Unlock()
	lease, life, sent := s.client.own("lease:", mine.identity), s.options.Lease.Milliseconds(), time.Now()
	if known {
		replies, err := s.client.send(ctx, []any{"PEXPIRE", lease, life})
		if err == nil && replies[0] == int64(1) {
			s.lapse.Reset(s.options.Lease*5/6 - time.Since(sent))
		}
		if err != nil || replies[0] == int64(1) {
			return err
		}
	}
	list, err := json.Marshal(s.queues)
	if err != nil {
		return err
	}
	keys := []string{lease, s.client.own("recovered:", mine.identity), s.client.own("owners")}
	reply, err := s.client.run(ctx, renewScript, keys, []any{mine.identity, life, list})
	if err != nil {
		return err
	}
	if reply == int64(0) {
		s.lose(mine)
		return s.renew(ctx)
	}
	s.lapse.Reset(s.options.Lease*5/6 - time.Since(sent))
	s.mu.Lock()
	mine.registered = true
	s.mu.Unlock()
	s.signal()
	return nil
}

// deregister removes this worker from Redis after a stop.
func (s *server) deregister(ctx context.Context) error {
	c, identity := s.client, s.identity()
	keys := []string{c.own("lease:", identity), c.own("owners"), c.own("suspects"), c.own("turn:pyworkers:owners")}
	for _, queue := range s.queues {
		keys = append(keys, c.inprogress(queue, identity))
	}
	_, err := c.run(ctx, deregisterScript, keys, []any{identity})
	_, gone := c.send(ctx, []any{"SREM", c.key("processes"), identity}, []any{"UNLINK", c.key(identity, ":work")})
	return errors.Join(err, gone, s.count(ctx))
}

// follow reads what others ask of this worker: signals, paused queues, cancelled jobs.
func (s *server) follow(ctx context.Context) error {
	c := s.client
	s.mu.Lock()
	forgotten := s.forgotten
	s.mu.Unlock()
	commands := [][]any{{"SMEMBERS", c.key("paused")}, {"ZRANGE", c.own("cancelled"), 0, -1}, {"RPOP", c.key(s.identity(), "-signals")}}
	if len(forgotten) > 0 {
		commands = append([][]any{append([]any{"ZREM", c.own("cancelled")}, forgotten...)}, commands...)
	}
	replies, err := c.send(ctx, commands...)
	if err != nil {
		return err
	}
	replies = replies[len(replies)-3:]
	s.mu.Lock()
	s.forgotten = s.forgotten[len(forgotten):]
	s.paused, s.cancelled = setOf(replies[0]), setOf(replies[1])
	maps.Copy(s.paused, s.barred)
	for d := range s.running {
		if d.began.Load() && cancels(s.cancelled, d.job) {
			d.cancel(ErrCancelled)
		}
	}
	s.mu.Unlock()
	if word := textOf(replies[2]); word != "" {
		s.obey(word)
	}
	return nil
}

// endMarked ends the jobs that Sidekiq's cancel! has marked, as Sidekiq ends its iterable jobs. As in Sidekiq, only a job that
// has run for five seconds is looked at. A job that ends as cancelled deletes its mark.
func (s *server) endMarked(ctx context.Context) error {
	var long []*delivery
	var commands [][]any
	s.mu.Lock()
	for d := range s.running {
		if d.began.Load() && time.Since(d.started) >= markedApart && isPrintable(d.job.id) {
			long = append(long, d)
			commands = append(commands, []any{"HEXISTS", s.client.key("it-", d.job.id), "cancelled"})
		}
	}
	s.mu.Unlock()
	if len(long) == 0 {
		return nil
	}
	replies, err := s.client.send(ctx, commands...)
	if err != nil {
		return err
	}
	for i, d := range long {
		if replies[i] == int64(1) {
			d.cancel(ErrCancelled)
		}
	}
	return nil
}

func setOf(reply any) map[string]bool {
	found := make(map[string]bool)
	for _, name := range listOf(reply) {
		found[textOf(name)] = true
	}
	return found
}

// obey does what a signal of Sidekiq's Web UI asks.
func (s *server) obey(word string) {
	s.log.Info("signal.received", "signal", word)
	switch word {
	case "TSTP":
		s.mu.Lock()
		s.quiet = true
		s.mu.Unlock()
	case "TERM":
		s.quitOnce()
	case "TTIN":
		stacks := make([]byte, maxStackBytes)
		s.log.Warn("server.dump", "stacks", string(stacks[:runtime.Stack(stacks, true)]))
	}
}

// beat shows this worker to Sidekiq's Web UI, the dashboard and pyworkers processes, and writes its counters.
func (s *server) beat(ctx context.Context) error {
	c := s.client
	s.mu.Lock()
	mine := s.mine.identity
	work := make([]any, 0, 2*len(s.running))
	for d := range s.running {
		payload := d.shown()
		if payload == "" {
			continue
		}
		about := map[string]any{"queue": d.queue, "payload": payload, "run_at": d.started.Unix()}
		if d.began.Load() && !d.limit.IsZero() {
			about["limit_at"] = d.limit.Unix()
		}
		text, _ := encode(about, "work") // texts and numbers
		work = append(work, strconv.FormatUint(d.number, 10), text)
	}
	busy, quiet, stopsAt := len(s.running), s.quiet, s.stopsAt
	s.mu.Unlock()
	info, err := s.about(mine, busy, quiet, stopsAt)
	if err != nil {
		return err
	}
	shown := c.key(mine, ":work")
	commands := [][]any{
		{"SADD", c.key("processes"), mine}, append([]any{"HSET", c.key(mine)}, info...), {"EXPIRE", c.key(mine), shownFor}, {"UNLINK", shown},
	}
	if len(work) > 0 {
		commands = append(commands, append([]any{"HSET", shown}, work...), []any{"EXPIRE", shown, workFor})
	}
	isNoted := time.Since(s.noted) < wireEvery
	if now := int64(s.now()); !isNoted {
		commands = append(commands, []any{"ZADD", c.own("wire"), now, wire},
			[]any{"ZREMRANGEBYSCORE", c.own("wire"), "-inf", now - wireFor}, []any{"EXPIRE", c.own("wire"), wireFor})
		if err := s.readClock(ctx); err != nil {
			return err
		}
	}
	if _, err := c.send(ctx, commands...); err != nil {
		return err
	}
	if !isNoted {
		s.noted = time.Now()
	}
	return s.count(ctx)
}

// shown is the job as the heartbeat has it. All running jobs are in each one, so a large one is without its arguments, and left
// out before it begins.
func (d *delivery) shown() string {
	if len(d.raw) <= maxShown {
		return strings.ToValidUTF8(d.raw, "?")
	}
	if !d.began.Load() {
		return ""
	}
	text := fmt.Sprintf(`["(a job of %d bytes, not shown)"]`, len(d.raw))
	return string(d.job.members.splice([]field{{"args", []byte(text)}}))
}

// about is the hash of this worker, as all versions of Sidekiq and servers of pyworkers read it.
func (s *server) about(identity string, busy int, quiet bool, stopsAt time.Time) ([]any, error) {
	directory, _ := os.Getwd()
	weights, classes := make(map[string]int), make(map[string][]string)
	groups := make(map[string]any)
	group := func(name string, queues map[string]int, concurrency, busy int, isOrdered bool) {
		groups[name] = map[string]any{
			"queues": queues, "strict": false, "mode": "goroutine", "processes": 1, "concurrency": concurrency, "busy": busy,
			"ordered": isOrdered, "workers": map[string]int{}, "restarts": 0,
		}
	}
	for queue, handlers := range s.handlers {
		if s.options.Queues[queue].Ordered {
			group(queue, map[string]int{queue: 1}, 1, 0, true)
		}
		weights[queue] = 1
		for class := range handlers {
			classes[queue] = append(classes[queue], class)
		}
	}
	info := map[string]any{
		"hostname": hostName(), "started_at": seconds(s.started), "pid": os.Getpid(), "tag": filepath.Base(directory),
		"concurrency": s.options.Concurrency, "queues": s.queues, "weights": []any{weights},
		"capsules": map[string]any{"go": map[string]any{"concurrency": s.options.Concurrency, "mode": "random", "weights": weights}},
		"labels":   []string{fmt.Sprintf("go: %d goroutines", s.options.Concurrency)}, "identity": identity, "version": "go",
		"flow": flowVersion, "embedded": false,
	}
	group("go", weights, s.options.Concurrency, busy, false)
	var texts [4][]byte
	for i, value := range []any{info, groups, classes, s.rules()} {
		var err error
		if texts[i], err = encode(value, "heartbeat"); err != nil {
			return nil, err
		}
	}
	if len(texts[2]) > 16_384 {
		texts[2] = nil
	}
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	ends := int64(0)
	if !stopsAt.IsZero() {
		ends = stopsAt.Add(time.Duration(s.offset.Load())).Unix()
	}
	return []any{
		"info", texts[0], "concurrency", s.options.Concurrency, "busy", busy, "beat", int64(s.now()), "rtt_us", 0,
		"quiet", strconv.FormatBool(quiet), "stops_at", ends, "rss", (memory.Sys - memory.HeapReleased) / 1024, "worker_heartbeats", "[]", "groups", texts[1],
		"classes", texts[2], "features", texts[3], "workers", "[]", "look", "0",
	}, nil
}

// count writes the counters.
func (s *server) count(ctx context.Context) error {
	s.mu.Lock()
	counts := s.counts
	s.counts = newTally()
	s.mu.Unlock()
	if len(counts.stats) == 0 {
		return nil
	}
	// They are sent once: after a lost reply, they would count twice.
	_, err := s.client.send(ctx, s.counters(counts, time.Unix(int64(s.now()), 0).UTC())...)
	return err
}

func (s *server) counters(counts tally, now time.Time) [][]any {
	c := s.client
	var commands [][]any
	for name, number := range counts.stats {
		key := c.key("pyworkers:stat:", name)
		if name == "processed" || name == "failed" {
			key = c.key("stat:", name)
		}
		day := key + ":" + now.Format(time.DateOnly)
		commands = append(commands, []any{"INCRBY", key, number}, []any{"INCRBY", day, number}, []any{"EXPIRE", day, statsFor})
	}
	if len(counts.runs) > 0 {
		key := c.own("runs:", strconv.FormatInt(now.Unix()/60, 10))
		for name, number := range counts.runs {
			commands = append(commands, []any{"HINCRBY", key, name, number})
		}
		commands = append(commands, []any{"EXPIRE", key, runsFor})
	}
	if len(counts.classes) > 0 {
		day, hour, minute := now.Format("060102"), now.Hour(), now.Minute()
		for name, life := range map[string]int{
			fmt.Sprintf("%s|%d:%d", now.Format("20060102"), hour, minute): shortMetrics, // Sidekiq 7
			fmt.Sprintf("%s|%d:%02d", day, hour, minute):                  shortMetrics, // Sidekiq 8
			fmt.Sprintf("%s|%d:%d", day, hour, minute/10):                 longMetrics,
		} {
			for field, number := range counts.classes {
				commands = append(commands, []any{"HINCRBY", c.key("j|", name), field, number})
			}
			commands = append(commands, []any{"EXPIRE", c.key("j|", name), life})
		}
	}
	return commands
}

// rules are what the jobs of each queue of this worker ask for that only servers with the same rules do.
func (s *server) rules() map[string][]string {
	found := make(map[string][]string)
	for queue, handlers := range s.handlers {
		hasLimits := func(h *Handler) bool { return len(h.options.Limits) > 0 }
		if s.options.Queues[queue].isLimited() || slices.ContainsFunc(slices.Collect(maps.Values(handlers)), hasLimits) {
			found[queue] = append(found[queue], "limited")
		}
		if s.options.Queues[queue].Ordered {
			found[queue] = append(found[queue], "ordered")
		}
	}
	return found
}

// checkRules looks for queues that are ordered or have limits in another server, but not here: their jobs would start out of
// order, or beyond a limit. No job of them is taken while that is so.
func (s *server) checkRules(ctx context.Context) error {
	c, mine, barred := s.client, s.rules(), make(map[string]bool)
	var wrong error
	servers := c.rdb.SScan(ctx, c.key("processes"), 0, "", 100).Iterator()
	for servers.Next(ctx) {
		text, err := c.rdb.HGet(ctx, c.key(servers.Val()), "features").Result()
		if err = translate(err); isLost(err) {
			return err
		}
		var features map[string][]string
		if err != nil || json.Unmarshal([]byte(text), &features) != nil {
			continue // it is gone, or another program
		}
		for _, queue := range s.queues {
			for _, rule := range []string{"ordered", "limited"} {
				if slices.Contains(features[queue], rule) && !slices.Contains(mine[queue], rule) {
					barred[queue] = true
					wrong = fmt.Errorf("pyworkers: the queue %q is %s in the server %s, but not here: give it the same rules, in "+
						"ServeOptions.Queues or HandlerOptions.Limits", queue, rule, servers.Val())
				}
			}
		}
	}
	if err := translate(servers.Err()); err != nil {
		return err
	}
	s.mu.Lock()
	s.barred = barred
	s.mu.Unlock()
	return wrong
}
