package pyworkers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// One exchange settles at most this many outcomes, and this many bytes after the first one.
	mostOutcomes = 1000
	mostBytes    = 16 << 20
	// So many bytes of jobs an exchange takes if they are as large as the largest one of the last; Redis does nothing else meanwhile.
	takenBytes = 2 << 20
	// How long a connection waits at a time for a job of an empty queue. Each is looked at that often in any case.
	watchFor = time.Second
	// The empty queues for which connections wait at once.
	mostWatched = 8
	// How often the in-progress lists are compared with the jobs that are known, and the time between two tries.
	compareEvery           = 5 * time.Second
	shortPause, longPause  = 50 * time.Millisecond, time.Second
	deadSeconds, deadLimit = 180 * 86400, 9_999
	// A job that was taken ahead and has not begun after this time is given back.
	aheadFor = time.Second
)

// exchanger is the loop that settles outcomes and takes jobs, all in one script: while one exchange is under way, the
// outcomes of many goroutines come together for the next one. Its fields belong to that loop.
type exchanger struct {
	*server
	sources []*source
	// held are the jobs in the in-progress lists.
	held    map[*delivery]struct{}
	sent    []*settlement // whose reply is awaited, or was lost
	watched chan watched
	// doubtful: a job may have been taken without our knowledge.
	doubtful     bool
	compared     time.Time
	pause        time.Duration
	failingSince time.Time
	over         time.Time // when the loop ends at the latest; zero before the stop
	number       uint64
	largest      int // bytes of a job of the last exchange that took some
}

// watched is the end of a wait for a job in a queue.
type watched struct {
	source   *source
	isFilled bool
	err      error
}

func newExchanger(s *server) *exchanger {
	x := &exchanger{
		server: s, held: make(map[*delivery]struct{}), watched: make(chan watched, len(s.queues)), compared: time.Now(), pause: shortPause,
	}
	for i, queue := range s.queues {
		x.sources = append(x.sources, &source{queue: queue, place: i, options: s.options.Queues[queue]})
	}
	return x
}

// loop runs until the worker has stopped and all outcomes are in Redis.
func (x *exchanger) loop() error {
	for {
		x.release()
		if done, err := x.isOver(); done {
			return err
		}
		x.compare()
		x.sent = x.portion()
		wanted := x.wanted()
		ready := x.ready(wanted)
		if len(x.sent) == 0 && len(ready) == 0 {
			x.rest(wanted > 0)
		} else if err := x.exchange(wanted, ready); err != nil {
			x.failed(err)
		} else {
			x.pause, x.failingSince = shortPause, time.Time{}
		}
	}
}

// ready are the queues from which jobs are taken now, in a random order.
func (x *exchanger) ready(wanted int) (found []*source) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, one := range x.sources {
		// An exchange that settles asks the empty ones, too.
		isDue := !one.next.After(time.Now()) || one.empty && one.isPlain() && len(x.sent) > 0
		if isDue && wanted > 0 && x.mine.registered && !x.paused[one.queue] {
			found = append(found, one)
		}
	}
	rand.Shuffle(len(found), func(i, j int) { found[i], found[j] = found[j], found[i] })
	return found
}

// rest waits until there is something to do.
func (x *exchanger) rest(watches bool) {
	if watches {
		x.watch()
	}
	pause := 200 * time.Millisecond
	for _, one := range x.sources {
		if left := time.Until(one.next); left > 0 {
			pause = min(pause, left)
		}
	}
	select {
	case <-x.wake:
	case found := <-x.watched:
		found.source.waits = false
		if found.err != nil {
			x.failed(found.err)
		} else if found.isFilled && found.source.empty {
			found.source.rest(0, false)
		}
	case <-time.After(pause):
		x.giveBackWaiting(aheadFor)
	}
}

// isOver is true if the worker stops and nothing is left to do, or if Redis could not be reached for too long.
func (x *exchanger) isOver() (bool, error) {
	x.mu.Lock()
	stops := !x.stopsAt.IsZero()
	x.mu.Unlock()
	if stops {
		x.giveBackWaiting(0)
	}
	select {
	case <-x.ended:
	default:
		return false, nil
	}
	if x.over.IsZero() {
		x.over = time.Now().Add(lastTries)
	}
	x.forgetLost()
	x.mu.Lock()
	left := len(x.outbox) + len(x.sent)
	x.mu.Unlock()
	if left+len(x.held) > 0 && time.Now().After(x.over) {
		return true, &UnavailableError{fmt.Errorf("%d jobs are not settled, and run again", max(left, len(x.held)))}
	}
	return left+len(x.held) == 0, nil
}

// forgetLost drops the jobs of lost incarnations, whose lists others have recovered.
func (x *exchanger) forgetLost() {
	x.mu.Lock()
	defer x.mu.Unlock()
	maps.DeleteFunc(x.held, func(d *delivery, _ struct{}) bool { return d.mine.lost })
}

// portion are the outcomes of the next exchange: those whose reply was lost again, else what has come together.
func (x *exchanger) portion() []*settlement {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.sent) > 0 {
		x.sent = slices.DeleteFunc(x.sent, func(o *settlement) bool { return o.delivery.mine.lost })
		return x.sent
	}
	x.outbox = slices.DeleteFunc(x.outbox, func(o *settlement) bool {
		if o.outcome.fate == isGone {
			delete(x.held, o.delivery)
		}
		return o.outcome.fate == isGone
	})
	size, number := 0, 0
	for number < len(x.outbox) && number < mostOutcomes && (number == 0 || size < mostBytes) {
		o := x.outbox[number]
		size += len(o.delivery.raw) + o.outcome.size()
		number++
	}
	sent := x.outbox[:number:number]
	x.outbox = x.outbox[number:]
	return sent
}

// wanted is the number of jobs to take: one for each idle goroutine and, if jobs take a few milliseconds at most, as many
// ahead as have ended since the last exchange.
func (x *exchanger) wanted() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.quiet || x.doubtful {
		return 0
	}
	ahead := 0
	if !x.slow {
		ahead = min(2*x.quick, 4*x.options.Concurrency)
	}
	waiting := len(x.jobs)
	few := max(1, takenBytes/max(1, x.largest))
	return max(0, min(x.options.Concurrency-len(x.running)-waiting+ahead, cap(x.jobs)-waiting, few))
}

// exchange settles the portion, and takes up to wanted jobs from these queues: first from those that are ordered or have
// limits, and whose jobs the settlement may let start.
func (x *exchanger) exchange(wanted int, ready []*source) error {
	x.mu.Lock()
	x.quick, x.slow = 0, false
	mine := x.mine
	x.mu.Unlock()
	apart := slices.DeleteFunc(slices.Clone(ready), (*source).isPlain)
	if len(apart) > 0 {
		ready = nil
	}
	if len(x.sent)+len(ready) > 0 {
		if err := x.settle(mine, wanted, ready); err != nil {
			return err
		}
	}
	for _, one := range apart {
		if err := x.takeApart(mine, one); err != nil {
			return err
		}
	}
	return nil
}

// settle settles the portion and takes up to wanted jobs.
func (x *exchanger) settle(mine *incarnation, wanted int, ready []*source) error {
	if len(ready) == 0 {
		wanted = 0
	}
	keys, args := x.call(mine, x.sent, wanted, ready)
	reply, err := x.client.run(x.base, exchangeScript, keys, args)
	if err != nil {
		x.doubtful = x.doubtful || wanted > 0 && isLost(err)
		return err
	}
	row, isRow := reply.([]any)
	switch {
	case isRow && len(row) == 0:
		x.sent = nil
		return x.loseNow(mine)
	case len(row) < 2:
		return fmt.Errorf("pyworkers: exchange.lua answered %v: it is of another version", reply)
	}
	return x.read(mine, row, wanted, ready)
}

// loseNow begins with another identity at once.
func (x *exchanger) loseNow(mine *incarnation) error {
	x.lose(mine)
	return x.renew(x.base)
}

// registerAgain registers this worker again if that is why Redis has refused.
func (x *exchanger) registerAgain(err error) error {
	if codeOf(err) != "UNREGISTERED" {
		return err
	}
	x.mu.Lock()
	x.mine.registered = false
	x.mu.Unlock()
	return x.renew(x.base)
}

// call is the keys and arguments of exchange.lua, which describes them.
func (x *exchanger) call(mine *incarnation, sent []*settlement, wanted int, ready []*source) (keys []string, args []any) {
	c := x.client
	keys = []string{c.key("retry"), c.key("schedule"), c.key("dead"), c.own("recovered:", mine.identity), c.own("owners")}
	for _, queue := range x.queues {
		keys = append(keys, c.key("queue:", queue), c.inprogress(queue, mine.identity))
	}
	now := x.now()
	args = []any{
		wanted, timeText(now), timeText(now - deadSeconds), deadLimit, mine.identity, len(keys), 0, len(ready),
	}
	for _, one := range ready {
		args = append(args, one.place+1)
	}
	var about []any
	for i, one := range sent {
		o := one.outcome
		args = append(args, int(o.fate)+20*(slices.Index(x.queues, one.delivery.queue)+1), one.delivery.raw)
		switch o.fate {
		case isRetried, isDead, isPutOff, isGivenBack:
			args = append(args, timeText(o.at), o.payload)
		}
		for _, e := range o.effects {
			for _, key := range e.keys {
				keys = append(keys, c.key(key))
			}
			about = append(append(about, i+1, e.name), e.args...)
		}
	}
	args[6] = len(args)
	return keys, append(append(args, about...), c.ns)
}

func (c *Client) inprogress(queue, identity string) string {
	return c.key("queue:", queue, ":", identity, ":inprogress")
}

// read takes the jobs of a reply, and notes which outcomes are settled.
func (x *exchanger) read(mine *incarnation, row []any, wanted int, ready []*source) error {
	for len(row) < 7 { // the last ones are left out if they are empty
		row = append(row, nil)
	}
	var left []*settlement
	for _, place := range listOf(row[4]) {
		if n, _ := place.(int64); n >= 1 && int(n) <= len(x.sent) {
			left = append(left, x.sent[n-1])
		}
	}
	for _, o := range x.sent {
		if o.outcome.fate != isNoted && !slices.Contains(left, o) {
			delete(x.held, o.delivery)
			if one := x.sources[slices.Index(x.queues, o.delivery.queue)]; one.held {
				one.rest(0, false)
			}
		}
	}
	if stale := len(listOf(row[0])); stale > 0 {
		x.log.Debug("job.stale", "jobs", stale)
	}
	for i, effects := 0, listOf(row[5]); i+1 < len(effects); i += 2 {
		x.log.Error("effect.refused", "error", effects[i+1])
	}
	number, largest := 0, 0
	for i, jobs := range listOf(row[1]) {
		for _, raw := range listOf(jobs) {
			if i < len(ready) {
				x.deliver(mine, ready[i], textOf(raw))
				number, largest = number+1, max(largest, len(textOf(raw)))
			}
		}
	}
	if number > 0 {
		x.largest = max(largest, x.largest/2) // one small job among large ones changes little
	}
	if number < wanted {
		for _, one := range ready {
			one.rest(watchFor, true)
		}
	}
	x.sent = nil
	if len(left) > 0 {
		x.mu.Lock()
		x.outbox = append(left, x.outbox...)
		x.mu.Unlock()
	}
	return x.refusal(row[2], listOf(row[3]), len(left) > 0)
}

// refusal is the error that stopped the taking of jobs, if there was one.
func (x *exchanger) refusal(why any, queues []any, isLeft bool) error {
	for i := 0; i+1 < len(queues); i += 2 {
		if place, _ := queues[i].(int64); place >= 1 && int(place) <= len(x.queues) {
			x.log.Error("queue.refused", "queue", x.queues[place-1], "error", queues[i+1])
			isLeft = true
		}
	}
	if text := textOf(why); text != "" {
		return x.registerAgain(errors.New(text))
	}
	if isLeft { // not at once again
		time.Sleep(shortPause)
	}
	return nil
}

// deliver hands a job to a goroutine, with the effects of its start.
func (x *exchanger) deliver(mine *incarnation, one *source, raw string, starts ...effect) {
	x.number++
	one.held = one.held || one.options.Ordered
	d := &delivery{mine: mine, queue: one.queue, raw: raw, started: time.Now(), number: x.number, fence: one.fence, starts: starts}
	d.ctx, d.cancel = context.WithCancelCause(x.base)
	x.held[d] = struct{}{}
	x.jobs <- d
}

func (x *exchanger) failed(err error) {
	if x.failingSince.IsZero() {
		x.failingSince = time.Now()
		x.log.Error("redis.failed", "error", err)
	}
	time.Sleep(x.pause)
	x.pause = min(2*x.pause, longPause)
}

// giveBackWaiting returns the jobs that no goroutine has begun for this time.
func (x *exchanger) giveBackWaiting(age time.Duration) {
	for range len(x.jobs) {
		var d *delivery
		select {
		case d = <-x.jobs:
		default:
			return
		}
		if time.Since(d.started) < age {
			x.jobs <- d
			continue
		}
		x.mu.Lock()
		x.giveBack(d)
		x.mu.Unlock()
	}
}

// watch has connections wait for the next job of empty queues. They move it from the end of its queue to the same end:
// the next exchange takes it, so that no reply that is lost matters.
func (x *exchanger) watch() {
	x.mu.Lock()
	defer x.mu.Unlock()
	waiting := 0
	for _, i := range rand.Perm(len(x.sources)) {
		one := x.sources[i]
		if !one.waits && one.empty && !x.paused[one.queue] && waiting < mostWatched {
			one.waits = true
			go func() {
				queue := x.client.key("queue:", one.queue)
				job, err := x.client.waits.BLMove(x.base, queue, queue, "RIGHT", "RIGHT", watchFor).Result()
				if err == redis.Nil {
					err = nil
				}
				x.watched <- watched{one, job != "", translate(err)}
			}()
		}
		if one.waits {
			waiting++
		}
	}
}

// compare finds jobs that were taken by a command whose reply was lost: they are in an in-progress list, and unknown
// here. It does so at once if that is likely, and now and then, because Redis may execute a command late.
func (x *exchanger) compare() {
	if !x.doubtful && time.Since(x.compared) < compareEvery {
		return
	}
	x.forgetLost()
	x.mu.Lock()
	mine := x.mine
	x.mu.Unlock()
	for _, one := range x.sources {
		known, list := make(map[string]int), x.client.inprogress(one.queue, mine.identity)
		number := 0
		for d := range x.held {
			if d.mine == mine && d.queue == one.queue {
				known[d.raw]++
				number++
			}
		}
		length, err := x.client.rdb.LLen(x.base, list).Result()
		if err == nil && int(length) > number || x.doubtful {
			var stored []string
			if stored, err = x.client.rdb.LRange(x.base, list, 0, -1).Result(); err == nil {
				x.adopt(mine, one, stored, known)
			}
		}
		if err != nil {
			x.failed(translate(err))
			return
		}
	}
	x.doubtful, x.compared = false, time.Now()
}

// adopt runs the jobs of a list that are not known.
func (x *exchanger) adopt(mine *incarnation, one *source, stored []string, known map[string]int) {
	for _, raw := range slices.Backward(stored) {
		if known[raw] > 0 {
			known[raw]--
			continue
		}
		x.log.Warn("job.adopted", "queue", one.queue)
		if len(x.jobs) == cap(x.jobs) { // the next comparison finds it
			return
		}
		x.deliver(mine, one, raw)
	}
}
