package pyworkers

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
)

// fate is where a job goes; the numbers are the same as in exchange.lua.
type fate int

const (
	isDone fate = iota
	isRetried
	isDead
	isDropped
	isGivenBack
	isPutOff
	isCancelled
	isNoted // it runs: the effects alone are applied
	isExpired
	isGone // it is not in the in-progress list any more: nothing is applied
)

// outcome is the end of one run of a job, as a value: it is applied by exchange.lua.
type outcome struct {
	fate    fate
	at      float64
	payload []byte // empty: the job as it is
	effects []effect
	failed  bool
	// chosen: the handler returned Discard. misfit: it did not run, because it does not fit this worker.
	chosen, misfit      bool
	errClass, errorText string
}

// effect is a write that belongs to the end of a job, or to its start.
type effect struct {
	name string
	keys []string // without the namespace
	args []any
}

// size is how many bytes the outcome adds to a call, without small ones. A call of more than a gigabyte ends the connection
// (client-query-buffer-limit), and would be sent again for ever.
func (o *outcome) size() int {
	size := len(o.payload)
	for _, e := range o.effects {
		for _, arg := range e.args {
			switch arg := arg.(type) {
			case []byte:
				size += len(arg)
			case string:
				size += len(arg)
			}
		}
	}
	return size
}

// The words of the vectors for ends, in the order of the fates.
var endings = [...]string{"done", "retry", "dead", "dropped", "given back", "put off", "cancelled", "noted", "expired"}

// ended is a job at its end, with the facts that the rules need.
type ended struct {
	job       *stored
	ending    string
	now       float64
	errClass  string
	errorText string
	trace     string
	result    []byte // JSON; nil unless it returned
}

func endingOf(o *outcome) string {
	switch {
	case o.chosen:
		return "discarded"
	case o.misfit && o.fate == isRetried:
		return "misfit"
	}
	return endings[o.fate]
}

func isFinal(ending string) bool {
	return !slices.Contains([]string{"retry", "misfit", "put off", "given back"}, ending)
}

const (
	longestError    = 2000
	longestProgress = 1000
	longestTrace    = 20_000
	maxResult       = 4 << 20
	maxFollowing    = 8 << 20
	maxSteps        = 1000
	maxJobsAtOnce   = 50_000
	runsKept        = 400 * 86400
	longestKey      = 256
	defaultSeconds  = 3600

	latestSlot      = 1_000_000_000_000
	longestName     = 1000
	longestRunError = 500
)

// ruled is true if a field of the job has effects at its start or its end.
func (job *stored) ruled() bool {
	for i := range job.members {
		switch job.members[i].name {
		case "track", "unique_key", "batch", "checkpoint", "cron":
			return true
		}
	}
	return false
}

// tracked is how long the status is kept after the end, in seconds; 0: it is not tracked.
func (job *stored) tracked() int {
	raw := job.members.get("track")
	if !job.truthy("track") || !isPrintable(job.id) {
		return 0
	}
	number, err := strconv.ParseFloat(string(raw), 64)
	switch {
	case err != nil && !errors.Is(err, strconv.ErrRange):
		return defaultSeconds
	case number > 0:
		return int(min(max(1, number), longestSeconds))
	}
	return 0
}

// truthy is true for a value that is not false, null, 0, or empty.
func (job *stored) truthy(name string) bool {
	switch raw := string(job.members.get(name)); raw {
	case "", "null", "false", `""`, "[]", "{}":
		return false
	default:
		number, err := strconv.ParseFloat(raw, 64)
		return err != nil || number != 0
	}
}

func (job *stored) history() bool { return job.truthy("history") && job.tracked() > 0 }

// starts are the effects of the start of a run. worker is HOST:PID.
func starts(job *stored, now float64, worker string) []effect {
	var found []effect
	if job.tracked() > 0 {
		found = append(found, storeFields("job:"+job.id, aliveSeconds, map[string]string{
			"state": string(Running), "queue": job.queue, "attempt": strconv.Itoa(job.attempt()), "started_at": string(timeText(now)),
		}))
		if job.attempt() > 0 { // it was dead perhaps, and is retried by hand
			found = append(found, effect{"DeleteKey", []string{"pyworkers:result:" + job.id}, nil})
		}
		if job.history() {
			run := append(append(append([]byte{'['}, timeText(now)...), ','), quoted(worker)...)
			found = append(found, storeFields("job:"+job.id, aliveSeconds, map[string]string{job.run("run:"): string(append(run, ']'))}))
		}
	}
	found = append(found, job.noteRun(map[string]string{
		"state": string(Running), "queue": job.queue, "started_at": string(timeText(now)), "finished_at": "",
	})...)
	if until, _ := job.members.text("unique_until"); until == string(UntilStart) {
		found = append(found, job.unlock()...)
	}
	return found
}

// run is the name of a field of this run: the failures and the crashes before it have a count each.
func (job *stored) run(prefix string) string {
	crashes, _ := asCount(job.members.get("crash_count"))
	return prefix + strconv.Itoa(job.attempt()+crashes)
}

var statesOf = map[string]State{
	"done": Done, "retry": Retrying, "misfit": Retrying, "dead": Dead, "discarded": Failed, "dropped": Failed,
	"cancelled": Cancelled, "expired": Expired, "put off": Scheduled, "given back": Waiting,
}

// ends are the effects of the end of a run. The error is for a result that is too large with what follows.
func ends(e ended) ([]effect, error) {
	found := append(trackEnds(e), historyEnds(e)...)
	until, _ := e.job.members.text("unique_until")
	if until != string(UntilExpiry) && (isFinal(e.ending) || until == string(UntilStart) && e.ending == "retry") {
		found = append(found, e.job.unlock()...)
	}
	counted, err := batchEnds(e)
	if err != nil {
		return nil, err
	}
	found = append(found, counted...)
	if isFinal(e.ending) && e.job.members.get("checkpoint") != nil && isPrintable(e.job.id) {
		found = append(found, effect{"DeleteIteration", []string{"it-" + e.job.id}, nil})
	}
	return append(found, cronEnds(e)...), nil
}

func trackEnds(e ended) []effect {
	keep := e.job.tracked()
	if keep == 0 {
		return nil
	}
	final := isFinal(e.ending)
	if !final {
		keep = aliveSeconds
	}
	status := map[string]string{"state": string(statesOf[e.ending]), "queue": e.job.queue}
	switch {
	case final || e.ending == "retry":
		attempt := e.job.attempt()
		if e.ending == "retry" {
			attempt++
		}
		status["attempt"], status["finished_at"], status["error"] = strconv.Itoa(attempt), string(timeText(e.now)), e.summary(longestError)
	case e.ending == "misfit":
		status["error"] = e.summary(longestError)
	}
	found := []effect{storeFields("job:"+e.job.id, keep, status)}
	if final {
		found = append(found, effect{"Announce", []string{"pyworkers:result:" + e.job.id}, []any{e.answer(), keep}})
	}
	return found
}

// summary is class and message of the error.
func (e ended) summary(longest int) string {
	text := e.errorText
	if e.errClass != "" {
		text = e.errClass + ": " + text
	}
	return cut(text, longest)
}

func (e ended) answer() []byte {
	if e.ending == "done" {
		result := e.result
		if result == nil {
			result = []byte("null")
		}
		return append(append([]byte(`{"state":"done","result":`), result...), '}')
	}
	w := new(fields)
	w.text("state", string(statesOf[e.ending]))
	w.raw("error_class", quoted(e.errClass))
	w.raw("error", quoted(e.errorText))
	return append(w.out, '}')
}

func historyEnds(e ended) []effect {
	if e.ending == "misfit" || e.errClass == "" || !e.job.history() {
		return nil
	}
	keep := aliveSeconds
	if isFinal(e.ending) {
		keep = e.job.tracked()
	}
	trace := e.trace[max(0, len(e.trace)-longestTrace):]
	text := append([]byte{'['}, quoted(e.errClass)...)
	text = append(append(text, ','), quoted(cut(e.errorText, longestError))...)
	text = append(append(append(text, ','), quoted(trace)...), ']')
	return []effect{storeFields("job:"+e.job.id, keep, map[string]string{e.job.run("error:"): string(text)})}
}

func (job *stored) unlock() []effect {
	raw := job.members.get("unique_key")
	if len(raw) < 3 || raw[0] != '"' {
		return nil
	}
	key := unquoted(raw)
	if len([]rune(key)) > longestKey {
		return nil
	}
	return []effect{{"Unlock", []string{"pyworkers:unique:" + key}, []any{job.id}}}
}

// cronEnds note the end in the run of a cron entry.
func cronEnds(e ended) []effect {
	facts := map[string]string{"state": string(statesOf[e.ending]), "queue": e.job.queue}
	if isFinal(e.ending) || e.ending == "retry" {
		facts["finished_at"] = string(timeText(e.now))
	}
	if isFinal(e.ending) || e.ending == "retry" || e.ending == "misfit" {
		facts["error"] = e.summary(longestRunError)
	}
	return e.job.noteRun(facts)
}

// noteRun adds facts to the run of a cron entry that has enqueued the job.
func (job *stored) noteRun(facts map[string]string) []effect {
	raw := job.members.get("cron")
	if len(raw) == 0 || raw[0] != '{' || !isPrintable(job.id) {
		return nil
	}
	about, err := parseMembers(raw)
	if err != nil {
		return nil
	}
	name, err := about.text("name")
	slot, slotErr := strconv.ParseInt(string(about.get("slot")), 10, 64)
	if err != nil || slotErr != nil || slot < 0 || slot >= latestSlot || name == "" || len(name) > longestName {
		return nil
	}
	if triggered := string(about.get("triggered")); triggered != "" && triggered != "false" && triggered != "null" {
		facts["triggered"] = "1"
	}
	w := new(fields)
	for _, fact := range slices.Sorted(maps.Keys(facts)) {
		w.raw(fact, quoted(facts[fact]))
	}
	run := strconv.FormatInt(slot, 10) + " " + job.id
	return []effect{{"NoteRun", []string{"pyworkers:cron-runs:" + name}, []any{run, append(w.out, '}'), runsKept}}}
}

// How a member is counted; an ending that is missing changes nothing.
var membersEnd = map[string]string{
	"done": "done", "retry": "failed", "dead": "dead", "discarded": "done", "dropped": "dropped", "cancelled": "cancelled", "expired": "expired",
}

func batchEnds(e ended) ([]effect, error) {
	raw, state := e.job.members.get("batch"), membersEnd[e.ending]
	if len(raw) < 2 || raw[0] != '"' || state == "" {
		return nil, nil
	}
	batch, place, result := unquoted(raw), -1, []byte{}
	if index, err := strconv.ParseInt(string(e.job.members.get("batch_index")), 10, 64); err == nil && index >= 0 && index < 1<<31 {
		place = int(index)
	}
	returned := e.result
	if returned == nil {
		returned = []byte("null")
	}
	if place >= 0 && state == "done" {
		result = returned
	}
	found := []effect{{"CountMember", []string{"pyworkers:batch:" + batch, "queues"}, []any{batch, e.job.id, state, place, result}}}
	if state != "done" || !e.job.truthy("then") {
		return found, nil
	}
	pushes, err := following(e.job.members.get("then"), returned, e.now)
	return append(found, pushes...), err
}

// following are the pushes of what follows a step that is done, with its result.
func following(then, result []byte, now float64) ([]effect, error) {
	if len(then) == 0 || then[0] != '{' {
		return nil, nil
	}
	about, err := parseMembers(then)
	if err != nil || string(about.get("v")) != "2" {
		return nil, err
	}
	steps := items(about.get("steps"))
	if len(steps) == 0 {
		return nil, nil
	}
	jobs := []json.RawMessage{steps[0]}
	if steps[0][0] == '[' {
		jobs = items(steps[0])
	}
	switch isGroup := steps[0][0] == '['; {
	case len(steps) > maxSteps:
		return nil, badJob{fmt.Sprintf("`then` has %d steps; the limit is %d", len(steps), maxSteps)}
	case len(jobs) > maxJobsAtOnce:
		return nil, badJob{fmt.Sprintf("`then` pushes %d jobs at once; the limit is %d", len(jobs), maxJobsAtOnce)}
	case isGroup && len(steps) > 1:
		return nil, badJob{"`then` has steps after a list of jobs: what follows a group waits in its batch"}
	}
	var rest []byte
	if len(steps) > 1 {
		list, _ := json.Marshal(steps[1:])
		rest = append(append([]byte(`{"v":2,"steps":`), list...), '}')
	}
	var found []effect
	room := maxFollowing
	for _, raw := range jobs {
		job, err := parseMembers(raw)
		if err != nil {
			continue
		}
		queue, err := job.text("queue")
		if err != nil || checkQueue("queue", queue) != nil {
			continue
		}
		payload := job.nextStep(rest, result, now)
		if room -= len(payload); room < 0 {
			return nil, fmt.Errorf("the jobs that follow, with the result, are larger than %d bytes: store the value elsewhere, and return its name", maxFollowing)
		}
		found = append(found, effect{"Push", []string{"queue:" + queue, "queues"}, []any{queue, payload}})
	}
	return found, nil
}

// nextStep is a step as it is pushed.
func (m members) nextStep(rest, result []byte, now float64) []byte {
	args := m.get("args")
	if args == nil {
		args = []byte("[]")
	}
	var paths [][]json.RawMessage
	if about, err := parseMembers(m.get("fill")); err == nil {
		for _, path := range items(about.get("RESULT")) {
			if path[0] == '[' {
				paths = append(paths, items(path))
			}
		}
	}
	changes := []field{}
	created, isNumber := plainNumber(m.get("created_at"))
	expiry, expires := plainNumber(m.get("expiry"))
	if isNumber && expires {
		changes = append(changes, field{"expiry", timeText(now + expiry - created)})
	}
	if rest != nil {
		changes = append(changes, field{"then", rest})
	}
	changes = append(changes, field{"enqueued_at", timeText(now)})
	text := m.splice(changes, "args", "fill")
	text = append(text[:len(text)-1], `,"args":`...)
	return append(fill(text, args, paths, result), '}')
}

func plainNumber(raw []byte) (float64, bool) {
	if len(raw) == 0 || raw[0] == '"' {
		return 0, false
	}
	number, err := strconv.ParseFloat(string(raw), 64)
	return number, err == nil && !math.IsInf(number, 0)
}

// fill adds the JSON text of a value with the results at these paths in it: each is indexes and names, as their JSON texts.
func fill(out, value []byte, paths [][]json.RawMessage, result []byte) []byte {
	inside := make(map[string][][]json.RawMessage)
	for _, path := range paths {
		if len(path) == 0 {
			return append(out, result...)
		}
		key := string(path[0])
		if path[0][0] == '"' {
			key = `"` + unquoted(path[0])
		}
		inside[key] = append(inside[key], path[1:])
	}
	if len(inside) == 0 || value[0] != '[' && value[0] != '{' {
		return append(out, value...)
	}
	out = append(out, value[0])
	index := 0
	_, _ = walk(value, 0, func(name []byte, at int) (int, error) {
		if index > 0 {
			out = append(out, ',')
		}
		key := strconv.Itoa(index)
		if name != nil {
			out, key = append(append(out, name...), ':'), `"`+unquoted(name)
		}
		index++
		end, _ := skipValue(value, at)
		out = fill(out, value[at:end], inside[key], result)
		return end, nil
	})
	return append(out, value[0]+2)
}

// storeFields is the effect that sets fields of a hash, a key of pyworkers' own, and its life in seconds.
func storeFields(key string, life int, values map[string]string) effect {
	return storeHash("StoreFields", "pyworkers:"+key, life, values)
}

func storeHash(name, key string, life int, values map[string]string) effect {
	w := new(fields)
	for _, field := range slices.Sorted(maps.Keys(values)) {
		w.raw(field, quoted(values[field]))
	}
	return effect{name, []string{key}, []any{append(w.out, '}'), life}}
}

// cut is the text without the characters after the longest.
func cut(text string, longest int) string {
	if len(text) <= longest {
		return text
	}
	runes := []rune(text)
	return string(runes[:min(len(runes), longest)])
}
