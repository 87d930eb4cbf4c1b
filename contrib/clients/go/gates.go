package pyworkers

import (
	"cmp"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Limit is a limit over all servers on one Redis: Rate jobs start in any Per, or Concurrency run at once. It is the same
// limit as worker.limit in Python with the same name and numbers.
type Limit struct {
	Name        string
	Rate        int
	Per         time.Duration // of Rate; by default a second
	Concurrency int
	// By names a value of the arguments, as the text of the first one: Args.Text(0). Each value has its own limit.
	By func(args Args) string
}

const (
	mostLimits, mostAtOnce  = 8, 1_000_000
	shortestPer, longestPer = time.Millisecond, 366 * 24 * time.Hour
	// A job whose turn in a rate is so near, in seconds, waits in its goroutine, and not in schedule.
	nearTurn = 0.1
	// A longer value of By is replaced by its digest, as in Python.
	longestValue = 130
	startsKept   = 60
	// How long a queue rests whose slots jobs of other servers have, and the shortest rest in standby.
	fullFor, shortestRest = 500 * time.Millisecond, 100 * time.Millisecond
)

var limitNames = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

var (
	askScript     = newScript("ask")
	limitedScript = newScript("limited")
	orderedScript = newScript("ordered")
	releaseScript = newScript("release")
)

// checkLimits checks the limits of a handler.
func checkLimits(class string, limits []Limit) error {
	names := make(map[string]bool)
	for i, one := range limits {
		per := cmp.Or(one.Per, time.Second)
		isWrong := !limitNames.MatchString(one.Name) || names[one.Name] || (one.Rate == 0) == (one.Concurrency == 0) || i >= mostLimits
		if isWrong || !isRate(one.Rate, per, shortestPer) || one.Concurrency < 0 || one.Concurrency > mostAtOnce {
			return &ArgumentError{"Limits of " + class, "are up to 8, each with another name of 1 to 64 letters, digits, '_', '-' and '.', and " +
				"either a Rate or a Concurrency up to a million, and a Per from 1 ms to a year", nil}
		}
		names[one.Name] = true
	}
	return nil
}

func isRate(rate int, per, shortest time.Duration) bool {
	return rate >= 0 && rate <= mostAtOnce && per >= shortest && per <= longestPer
}

// key names the limit, with the value of By.
func (l Limit) key(args Args, isSealed bool) string {
	switch {
	case l.By == nil:
		return l.Name
	case isSealed:
		return l.Name + ":" + digestOf(l.By(args))
	}
	return l.Name + ":" + shortened(l.By(args))
}

// shortened is a text as it is part of a key: a long one, or one that cannot be printed, is its digest.
func shortened(text string) string {
	size := len(strconv.QuoteToASCII(text))
	for _, r := range text {
		if !strconv.IsPrint(r) {
			return digestOf(text)
		}
		size += 2 * (utf8.RuneLen(r) / 4) // JSON has two escapes of 6 characters for what is one of 10 in Go
	}
	if size > longestValue {
		return digestOf(text)
	}
	return text
}

func digestOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// windowOf is the window of a rate in Redis, in seconds: it begins a little before the first line of the job.
func windowOf(per time.Duration) float64 {
	s := cmp.Or(per, time.Second).Seconds()
	return s + min(s/10, 0.004)
}

// noteStart begins the window of a start, when the job starts.
func noteStart(key, member string, per time.Duration) effect {
	return effect{"NoteStart", []string{"pyworkers:limit:" + key}, []any{member, int(math.Ceil(windowOf(per))) + startsKept}}
}

// ask has a job start when all its limits allow it; an outcome is one without a run. Redis decides: at once, soon, or it puts
// the job into schedule, from where it comes back.
func (s *server) ask(d *delivery, limits []Limit, args Args) *outcome {
	c, job := s.client, d.job
	id := shortened(job.id)
	holder := d.mine.identity + "|" + newID() + " " + id
	keys := []string{c.inprogress(d.queue, d.mine.identity), c.key("schedule"), c.own("limits"), c.key("queues")}
	argv := []any{d.raw, job.named(), d.queue + " " + id, holder, nearTurn}
	for _, one := range limits {
		key, most, window := one.key(args, job.isSealed()), one.Concurrency, 0.0
		waiting := "limit-waiting:" + key
		if one.Rate > 0 {
			most, window = one.Rate, windowOf(one.Per)
			d.starts = append(d.starts, noteStart(key, holder, one.Per))
		} else { // from now on, its end frees the slot, also if the reply is lost
			d.ends = append(d.ends, effect{"PassSlot", []string{"pyworkers:limit:" + key, "pyworkers:" + waiting, "schedule", "queues"}, []any{holder}})
		}
		keys = append(keys, c.own("limit:", key), c.own(waiting))
		argv = append(argv, key, most, window)
	}
	for goesOn := true; goesOn; {
		reply, err := c.run(s.base, askScript, keys, append(argv, c.ns))
		row := append(listOf(reply), "", "", "")
		pause := longPause
		switch word, after := textOf(row[0]), textOf(row[1]); {
		case err != nil:
			s.log.Error("limit.failed", "queue", d.queue, "error", err)
		case word == "granted":
			return nil
		case word == "wait":
			pause = secondsOf(after)
		default: // it is in schedule, or with another server
			if word == "broken" {
				s.log.Error("limit.failed", "queue", d.queue, "error", "WRONGTYPE "+textOf(row[2])+" is not a zset")
			}
			return &outcome{fate: isGone}
		}
		goesOn = s.pause(d, pause)
		if s.isCancelled(job) {
			return s.withEnd(d, &outcome{fate: isCancelled}, nil, "")
		}
	}
	return &outcome{fate: isGivenBack}
}

// QueueOptions are the rules of a queue over all servers. All of them need the same ones: those in Python have them as
// [queues.NAME] of the configuration, or of a handler.
type QueueOptions struct {
	// Rate jobs start in any Per, which is a second by default, and MaxRunning run at once. 0 is no limit.
	Rate       int
	Per        time.Duration
	MaxRunning int
	// Ordered runs one job at a time over all servers, in the order of the queue. One server is active, the others wait.
	// A failing job is retried in its place, and the queue waits.
	Ordered bool
	// StopAtDead pauses an ordered queue when a job is dead, as skip_dead = false does.
	StopAtDead bool
}

func (o QueueOptions) check(queue string) error {
	refuse := func(rule string) error { return &ArgumentError{"Queues[" + queue + "]", rule, nil} }
	switch {
	case !isRate(o.Rate, cmp.Or(o.Per, time.Second), time.Second) || o.MaxRunning < 0:
		return refuse("has a number below 0 or above a million, or a Per that is not from 1 s to a year")
	case o.Ordered && o.isLimited():
		return refuse("is ordered, so it has no Rate and no MaxRunning: its jobs may have Limits")
	}
	return nil
}

func (o QueueOptions) isLimited() bool { return o.Rate > 0 || o.MaxRunning > 0 }

// source is a queue, as the exchanger takes from it.
type source struct {
	queue   string
	options QueueOptions
	place   int       // among the queues
	next    time.Time // when it is looked at again
	empty   bool
	waits   bool // a connection waits for a job
	held    bool // until a job of it ends: all slots are taken, or it is ordered
	// Of an ordered queue: the server that is active as far as known, and the fencing token while this one is.
	active string
	fence  int64
}

// isPlain is true for a queue whose jobs are taken by the exchange.
func (one *source) isPlain() bool { return !one.options.Ordered && !one.options.isLimited() }

// rest has a queue looked at again after this time, or when it gets a job if it is empty.
func (one *source) rest(pause time.Duration, isEmpty bool) {
	one.next, one.empty = time.Now().Add(pause), isEmpty
}

// takeApart takes jobs of a queue that is ordered or has limits.
func (x *exchanger) takeApart(mine *incarnation, one *source) (err error) {
	one.held = false
	wanted := x.wanted()
	switch {
	case wanted == 0:
		return nil
	case !one.options.Ordered:
		err = x.takeLimited(mine, one, wanted)
	case x.holds(mine, one.queue):
		one.held = true
		one.rest(watchFor, false)
	default:
		err = x.takeNext(mine, one)
	}
	x.doubtful = x.doubtful || isLost(err)
	return x.registerAgain(err)
}

// holds is true if jobs of a queue are in its in-progress list.
func (x *exchanger) holds(mine *incarnation, queue string) bool {
	for d := range x.held {
		if d.mine == mine && d.queue == queue {
			return true
		}
	}
	return false
}

// takeLimited takes up to wanted jobs, but none that may not start now.
func (x *exchanger) takeLimited(mine *incarnation, one *source, wanted int) error {
	c, o, key := x.client, one.options, "queue/"+one.queue
	x.number++
	name := fmt.Sprintf("%s %d", mine.identity, x.number)
	keys := []string{
		c.key("queue:", one.queue), c.inprogress(one.queue, mine.identity), c.own("recovered:", mine.identity), c.own("owners"),
		c.own("limit:", key), c.own("limits"),
	}
	args := []any{mine.identity, wanted, name, o.Rate, windowOf(o.Per), o.MaxRunning, key, "running/" + one.queue}
	reply, err := c.run(x.base, limitedScript, keys, args)
	row := listOf(reply)
	switch {
	case err != nil:
		return err
	case len(row) < 3:
		return x.loseNow(mine)
	}
	jobs := listOf(row[0])
	for i, raw := range jobs {
		if o.Rate > 0 {
			x.deliver(mine, one, textOf(raw), noteStart(key, fmt.Sprintf("%s:%d", name, i+1), o.Per))
		} else {
			x.deliver(mine, one, textOf(raw))
		}
	}
	switch after := textOf(row[1]); {
	case after != "":
		one.rest(secondsOf(after), false)
	case textOf(row[2]) != "":
		one.held = true
		one.rest(fullFor, false)
	case len(jobs) < wanted:
		one.rest(watchFor, true)
	}
	return nil
}

// takeNext takes the next job of an ordered queue, if this server is active there or can become it.
func (x *exchanger) takeNext(mine *incarnation, one *source) error {
	c, owner := x.client, cmp.Or(one.active, mine.identity)
	keys := []string{
		c.own("ordered:", one.queue), c.key("queue:", one.queue), c.inprogress(one.queue, mine.identity), c.own("recovered:", mine.identity),
		c.own("owners"), c.key("paused"), c.own("lease:", owner), c.inprogress(one.queue, owner),
	}
	reply, err := c.run(x.base, orderedScript, keys, []any{mine.identity, one.active, one.queue})
	if err != nil {
		return err
	}
	row := append(listOf(reply), "", int64(0), int64(0), "")
	fence, _ := row[1].(int64)
	ms, _ := row[2].(int64)
	wait := min(max(time.Duration(ms)*time.Millisecond, shortestRest), watchFor)
	switch word := textOf(row[0]); word {
	case "lost":
		return x.loseNow(mine)
	case "other":
		one.active = textOf(row[3]) // and at once again
	case "standby", "expired":
		one.active = textOf(row[3])
		x.isActive(one, 0)
		one.rest(wait, false)
	case "paused":
		one.rest(watchFor, false)
	case "wait":
		x.isActive(one, fence)
		one.rest(wait, false)
	case "empty":
		x.isActive(one, fence)
		one.rest(watchFor, true)
	case "job":
		x.isActive(one, fence)
		x.deliver(mine, one, textOf(row[3]))
	default:
		return fmt.Errorf("pyworkers: ordered.lua answered %v: it is of another version", reply)
	}
	return nil
}

// isActive notes whether this server is active for an ordered queue: with a fencing token.
func (x *exchanger) isActive(one *source, fence int64) {
	if one.fence != fence {
		x.log.Info(map[bool]string{true: "queue.active", false: "queue.standby"}[fence > 0], "queue", one.queue, "fence", fence)
	}
	one.fence = fence
}

// release has other servers become active for the ordered queues, while this one takes no jobs.
func (x *exchanger) release() {
	x.mu.Lock()
	mine, quiet := x.mine, x.quiet
	x.mu.Unlock()
	for _, one := range x.sources {
		if !quiet || one.fence == 0 || x.holds(mine, one.queue) {
			continue
		}
		keys := []string{x.client.own("ordered:", one.queue), x.client.inprogress(one.queue, mine.identity)}
		if _, err := x.client.run(x.base, releaseScript, keys, []any{mine.identity}); err != nil {
			x.log.Error("queue.not_released", "queue", one.queue, "error", err) // others wait for the end of the lease
		}
		one.active = ""
		x.isActive(one, 0)
	}
}

// inPlace is the outcome of a job of an ordered queue: one that is to run again keeps its place, and the queue waits.
func (o QueueOptions) inPlace(d *delivery, found outcome, now float64) *outcome {
	switch key := "ordered:" + d.queue; {
	case found.fate == isRetried || found.fate == isPutOff:
		sum := sha1.Sum([]byte(cmp.Or(string(found.payload), d.raw)))
		delay := int64(max(0, math.Round((found.at-now)*1000)))
		found.effects = append(found.effects, effect{"HoldHead", []string{"pyworkers:" + key}, []any{delay, hex.EncodeToString(sum[:])}})
		found.fate, found.at = isGivenBack, 0
	case found.fate == isDead && o.StopAtDead:
		found.effects = append(found.effects, effect{"PauseQueue", []string{"paused"}, []any{d.queue}})
	}
	return &found
}

const (
	// suspectMark is behind the last byte of a job that a dead server had; recover.lua writes it, and an entry for the job.
	suspectMark = "\t"
	// From this many dead servers on, a job is a suspect: it runs while no other one does. It is dead when this many servers
	// died while it was the suspect that they ran.
	suspectFrom, maxDeaths = 2, 3
	suspectsFor            = 86400
)

// suspectField is the field of the entry of a marked job.
func suspectField(raw string) string {
	sum := sha1.Sum([]byte(strings.TrimRight(raw, suspectMark)))
	return hex.EncodeToString(sum[:])
}

// forgetSuspect deletes the entry of a marked job.
func forgetSuspect(raw string) effect {
	return effect{"DeleteField", []string{"pyworkers:suspects"}, []any{suspectField(raw)}}
}

// admit lets a marked job start: at once, or in its turn if it is a suspect. free ends the turn. An outcome is one
// without a run.
func (s *server) admit(d *delivery) (instead *outcome, free func()) {
	servers, deaths := s.entry(d)
	switch {
	case servers < suspectFrom:
		return nil, func() {}
	case deaths >= maxDeaths:
		f := failure{class: "WorkerLost", message: fmt.Sprintf("its server died while it ran; dead after %d such servers", deaths), fate: isDead}
		return s.withEnd(d, failed(d.job, f, new(HandlerOptions), s.now()), nil, ""), nil
	}
	s.log.Warn("job.held", "queue", d.queue, "jid", d.job.id)
	select {
	case s.turn <- struct{}{}:
	case <-s.quit:
		return &outcome{fate: isGivenBack}, nil
	case <-d.ctx.Done():
		return &outcome{fate: isGivenBack}, nil
	}
	// It is noted first: the job may end this process at once.
	key := s.client.own("suspects")
	noted := func() error {
		_, err := s.client.send(d.ctx, []any{"HSET", key, d.mine.identity, suspectField(d.raw)}, []any{"EXPIRE", key, suspectsFor})
		return err
	}
	if !s.untilDone(d, noted) {
		<-s.turn
		return &outcome{fate: isGivenBack}, nil
	}
	return nil, func() {
		s.mu.Lock()
		s.counts.stats["suspects"]++
		s.mu.Unlock()
		if _, err := s.client.send(s.base, []any{"HDEL", key, d.mine.identity}); err != nil {
			s.log.Error("suspect.noted_still", "error", err)
		}
		<-s.turn
	}
}

// entry is how many servers died that had the job, and how many of these deaths it is held responsible for.
func (s *server) entry(d *delivery) (servers, deaths int) {
	s.untilDone(d, func() error {
		replies, err := s.client.send(d.ctx, []any{"HGET", s.client.own("suspects"), suspectField(d.raw)})
		if err == nil {
			_, _ = fmt.Sscanf(textOf(replies[0]), "%d %d", &servers, &deaths) // an invalid entry counts as empty
		}
		return err
	})
	return servers, deaths
}

// untilDone tries again while Redis is unreachable; false if the job is to end before.
func (s *server) untilDone(d *delivery, try func() error) bool {
	for {
		err := try()
		if err == nil || !isLost(err) { // of another type: there are no entries
			return true
		}
		if !s.pause(d, longPause) {
			return false
		}
	}
}
