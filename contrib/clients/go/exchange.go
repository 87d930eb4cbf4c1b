package pyworkers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"
)

const (
	// One exchange settles so many outcomes at most, and so many bytes after the first one.
	mostOutcomes = 1000
	mostBytes    = 8 << 20
	// How long Redis blocks at a time for a job of an empty queue. A stop waits for it.
	blockFor = time.Second
	// The queues for which connections block at once; the others are looked at each second.
	mostBlocked = 8
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
	// held are the jobs in the in-progress lists.
	held    map[*delivery]struct{}
	sent    []*settlement // whose reply is awaited, or was lost
	blocked map[string]bool
	moved   chan move
	// empty: the last exchange has found less than it wanted. doubtful: a job may have been taken without our knowledge.
	empty, doubtful bool
	compared        time.Time
	looked          time.Time
	pause           time.Duration
	failingSince    time.Time
	over            time.Time // when the loop ends at the latest; zero before the stop
	number          uint64
}

// move is a job that a blocking connection has taken, or none.
type move struct {
	mine       *incarnation
	queue, raw string
	err        error
}

func newExchanger(s *server) *exchanger {
	return &exchanger{
		server: s, held: make(map[*delivery]struct{}), blocked: make(map[string]bool),
		moved: make(chan move, len(s.queues)), compared: time.Now(), pause: shortPause,
	}
}

// loop runs until the worker has stopped and all outcomes are in Redis.
func (x *exchanger) loop() error {
	timer := time.NewTicker(200 * time.Millisecond)
	defer timer.Stop()
	for {
		if x.stopping() {
			x.giveBackWaiting(0)
			if done, err := x.isOver(); done {
				return err
			}
		}
		x.compare()
		x.returnLost()
		x.sent = x.portion()
		wanted := x.wanted()
		if len(x.sent) == 0 && (wanted == 0 || x.empty && (len(x.blocked) == len(x.queues) || time.Since(x.looked) < blockFor)) {
			if wanted > 0 {
				x.block()
			}
			select {
			case <-x.wake:
			case found := <-x.moved:
				x.take(found)
			case <-timer.C:
				x.giveBackWaiting(aheadFor)
			}
			continue
		}
		if err := x.exchange(wanted); err != nil {
			x.failed(err)
		} else {
			x.pause, x.failingSince = shortPause, time.Time{}
		}
	}
}

func (x *exchanger) stopping() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return !x.stopsAt.IsZero()
}

// isOver is true if nothing is left to do, or if Redis was away for too long.
func (x *exchanger) isOver() (bool, error) {
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
	if left+len(x.held)+len(x.blocked) > 0 && time.Now().After(x.over) {
		return true, &UnavailableError{fmt.Errorf("%d jobs are not settled, and run again", max(left, len(x.held)))}
	}
	return left+len(x.held)+len(x.blocked) == 0, nil
}

// forgetLost drops the jobs of lost incarnations, whose lists others have recovered.
func (x *exchanger) forgetLost() {
	x.mu.Lock()
	defer x.mu.Unlock()
	maps.DeleteFunc(x.held, func(d *delivery, _ struct{}) bool { return d.mine.lost })
}

// returnLost returns what is left in the lists of lost incarnations: jobs that this worker took after others had
// recovered these lists, and before it knew.
func (x *exchanger) returnLost() {
	x.mu.Lock()
	left := x.left
	x.left = nil
	x.mu.Unlock()
	for i, lost := range left {
		for place := 0; place < len(x.queues); {
			from, to := x.client.inprogress(x.queues[place], lost.identity), x.client.key("queue:", x.queues[place])
			replies, err := x.client.send(x.base, []any{"BLMOVE", from, to, "LEFT", "RIGHT", 0.01})
			if err != nil {
				x.mu.Lock()
				x.left = append(x.left, left[i:]...)
				x.mu.Unlock()
				return
			}
			if replies[0] == nil {
				place++
			}
		}
	}
}

// portion are the outcomes of the next exchange: those whose reply was lost again, else what has come together.
func (x *exchanger) portion() []*settlement {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.sent) > 0 {
		x.sent = slices.DeleteFunc(x.sent, func(o *settlement) bool { return o.delivery.mine.lost })
		return x.sent
	}
	size, number := 0, 0
	for number < len(x.outbox) && number < mostOutcomes && (number == 0 || size < mostBytes) {
		o := x.outbox[number]
		size += len(o.delivery.raw) + len(o.outcome.payload)
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
	return max(0, min(x.options.Concurrency-len(x.running)-waiting+ahead, cap(x.jobs)-waiting-len(x.queues)))
}

// exchange settles the portion and takes up to wanted jobs.
func (x *exchanger) exchange(wanted int) error {
	x.mu.Lock()
	x.quick, x.slow = 0, false
	mine := x.mine
	if !mine.registered {
		wanted = 0
	}
	order := make([]int, 0, len(x.queues))
	for i, queue := range x.queues {
		if wanted > 0 && !x.rests(queue) {
			order = append(order, i)
		}
	}
	x.mu.Unlock()
	rand.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	if len(order) == 0 {
		wanted = 0
	}
	keys, args := x.call(mine, x.sent, wanted, order)
	reply, err := x.client.run(x.base, exchangeScript, keys, args)
	if err != nil {
		x.doubtful = x.doubtful || wanted > 0 && isLost(err)
		return err
	}
	row, isRow := reply.([]any)
	switch {
	case isRow && len(row) == 0:
		x.lose(mine)
		x.sent = nil
		return nil
	case len(row) < 2:
		return fmt.Errorf("pyworkers: exchange.lua answered %v: it is of another version", reply)
	}
	return x.read(mine, row, wanted, order)
}

// call is the keys and arguments of exchange.lua, which describes them.
func (x *exchanger) call(mine *incarnation, sent []*settlement, wanted int, order []int) (keys []string, args []any) {
	c := x.client
	keys = []string{c.key("retry"), c.key("schedule"), c.key("dead"), c.own("recovered:", mine.identity), c.own("owners")}
	for _, queue := range x.queues {
		keys = append(keys, c.key("queue:", queue), c.inprogress(queue, mine.identity))
	}
	now := x.now()
	args = []any{
		wanted, timeText(now), timeText(now - deadSeconds), deadLimit, mine.identity, len(keys), 0, len(order),
	}
	for _, place := range order {
		args = append(args, place+1)
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
func (x *exchanger) read(mine *incarnation, row []any, wanted int, order []int) error {
	rest := func(i int) []any {
		if i >= len(row) {
			return nil
		}
		found, _ := row[i].([]any)
		return found
	}
	var left []*settlement
	for _, place := range rest(4) {
		if n, _ := place.(int64); n >= 1 && int(n) <= len(x.sent) {
			left = append(left, x.sent[n-1])
		}
	}
	for _, o := range x.sent {
		if o.outcome.fate != isNoted && !slices.Contains(left, o) {
			delete(x.held, o.delivery)
		}
	}
	if stale := len(rest(0)); stale > 0 {
		x.log.Debug("job.stale", "jobs", stale)
	}
	for i := 0; i+1 < len(rest(5)); i += 2 {
		x.log.Error("effect.refused", "error", rest(5)[i+1])
	}
	number := 0
	for i, jobs := range rest(1) {
		list, _ := jobs.([]any)
		for _, raw := range list {
			if text, isText := raw.(string); isText && i < len(order) {
				x.deliver(mine, x.queues[order[i]], text)
				number++
			}
		}
	}
	x.empty = number < wanted
	x.looked = time.Now()
	x.sent = nil
	if len(left) > 0 {
		x.mu.Lock()
		x.outbox = append(left, x.outbox...)
		x.mu.Unlock()
	}
	if len(row) > 2 {
		return x.refusal(row[2], rest(3), len(left) > 0)
	}
	return nil
}

// refusal is the error that stopped the taking of jobs, if there was one.
func (x *exchanger) refusal(why any, queues []any, isLeft bool) error {
	for i := 0; i+1 < len(queues); i += 2 {
		if place, _ := queues[i].(int64); place >= 1 && int(place) <= len(x.queues) {
			x.log.Error("queue.refused", "queue", x.queues[place-1], "error", queues[i+1])
			isLeft = true
		}
	}
	if text, _ := why.(string); text != "" {
		if len(text) > 12 && text[:12] == "UNREGISTERED" {
			x.mu.Lock()
			x.mine.registered = false
			x.mu.Unlock()
			return x.renew(x.base)
		}
		return errors.New(text)
	}
	if isLeft { // not at once again
		time.Sleep(shortPause)
	}
	return nil
}

// deliver hands a job to a goroutine.
func (x *exchanger) deliver(mine *incarnation, queue, raw string) {
	x.number++
	d := &delivery{mine: mine, queue: queue, raw: raw, started: time.Now(), number: x.number}
	d.ctx, d.cancel = context.WithCancelCause(x.base)
	x.held[d] = struct{}{}
	x.jobs <- d
}

func (x *exchanger) failed(err error) {
	if x.failingSince.IsZero() {
		x.failingSince = time.Now()
		x.log.Error("redis.failed", "error", err)
	}
	select {
	case <-time.After(x.pause):
	case found := <-x.moved:
		x.take(found)
	}
	x.pause = min(2*x.pause, longPause)
}

// giveBackWaiting returns the jobs that no goroutine has begun for so long.
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
		if !d.ended && !d.mine.lost {
			d.ended = true
			x.outbox = append(x.outbox, &settlement{d, &outcome{fate: isGivenBack}})
		}
		x.mu.Unlock()
	}
}

// block waits for the next job of empty queues, each on a connection.
func (x *exchanger) block() {
	x.mu.Lock()
	defer x.mu.Unlock()
	mine := x.mine
	for _, i := range rand.Perm(len(x.queues)) {
		queue := x.queues[i]
		if x.rests(queue) || x.blocked[queue] || len(x.blocked) >= mostBlocked || !mine.registered {
			continue
		}
		x.blocked[queue] = true
		go func() {
			from, to := x.client.key("queue:", queue), x.client.inprogress(queue, mine.identity)
			// It ends long before the lease: a job that is moved after the lease would be in a list that no server reads.
			limit := min(blockFor, x.options.Lease/4).Seconds()
			replies, err := x.client.send(x.base, []any{"BLMOVE", from, to, "RIGHT", "LEFT", limit})
			raw, _ := replies[0].(string)
			x.moved <- move{mine, queue, raw, err}
		}()
	}
}

// take takes what a blocking connection has found.
func (x *exchanger) take(found move) {
	delete(x.blocked, found.queue)
	x.mu.Lock()
	isLost := found.mine.lost
	if isLost {
		x.left = append(x.left, found.mine)
	}
	x.mu.Unlock()
	switch {
	case isLost:
	case found.raw != "":
		x.deliver(found.mine, found.queue, found.raw)
		x.empty = false // one job means probably more
	case found.err != nil:
		x.doubtful = true
		x.failed(found.err)
	}
}

// compare finds jobs that were taken by a command whose reply was lost: they are in an in-progress list, and unknown
// here. It reads the lists while no other command takes jobs.
func (x *exchanger) compare() {
	if !x.doubtful && time.Since(x.compared) < compareEvery {
		return
	}
	x.forgetLost()
	x.mu.Lock()
	mine := x.mine
	x.mu.Unlock()
	if !x.doubtful {
		longer, err := x.longer(mine)
		if err == nil {
			x.compared = time.Now()
		}
		x.doubtful = longer
		return
	}
	for len(x.blocked) > 0 { // they return within a second
		x.take(<-x.moved)
	}
	x.doubtful = true
	for _, queue := range x.queues {
		stored, err := x.client.rdb.LRange(x.base, x.client.inprogress(queue, mine.identity), 0, -1).Result()
		if err != nil {
			x.failed(translate(err))
			return
		}
		x.adopt(mine, queue, stored)
	}
	x.doubtful, x.compared = false, time.Now()
}

// longer is true if an in-progress list has more jobs than are known.
func (x *exchanger) longer(mine *incarnation) (bool, error) {
	known := make(map[string]int)
	for d := range x.held {
		if d.mine == mine {
			known[d.queue]++
		}
	}
	for _, queue := range x.queues {
		number, err := x.client.rdb.LLen(x.base, x.client.inprogress(queue, mine.identity)).Result()
		if err != nil {
			return false, err
		}
		if int(number) > known[queue] {
			return true, nil
		}
	}
	return false, nil
}

// adopt runs the jobs of a list that are not known.
func (x *exchanger) adopt(mine *incarnation, queue string, stored []string) {
	known := make(map[string]int)
	for d := range x.held {
		if d.mine == mine && d.queue == queue {
			known[d.raw]++
		}
	}
	for _, raw := range slices.Backward(stored) {
		if known[raw] > 0 {
			known[raw]--
			continue
		}
		x.log.Warn("job.adopted", "queue", queue)
		if len(x.jobs) == cap(x.jobs) { // the next comparison finds it
			return
		}
		x.deliver(mine, queue, raw)
	}
}
