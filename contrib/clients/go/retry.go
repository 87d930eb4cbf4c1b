package pyworkers

import (
	"bytes"
	"compress/zlib"
	"encoding/base64"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	maxRetries      = 25
	longestDelay    = 10 * 365 * 86400.0
	maxErrorMessage = 10_000
	maxTraceLines   = 1000
	maxTraceBytes   = 100_000
	// A job that fits no server is kept for this time, in seconds, and is given to a server this many times at least.
	misfitSeconds = 3600
	minMisfits    = 10
)

var misfitDelays = [...]int{5, 10, 20, 40, 80, 120}

// Class names in error_class, the same as Python's.
const (
	unknownJob  = "UnknownJobError"
	badMessage  = "BadMessageError"
	badArgument = "BadArgumentError"
	keyMissing  = "EncryptionKeyError"
	timeLimit   = "JobTimeout"
	badResult   = "BadResultError"
	panicked    = "panic"
	enterprise  = "these arguments are encrypted by Sidekiq Enterprise, which pyworkers cannot open: run this class in Ruby"
)

// choice is an error with which a handler chooses what becomes of its job.
type choice struct {
	fate  fate
	delay time.Duration
	err   error
}

func (c *choice) Error() string {
	if c.err == nil {
		return "the job ended by choice"
	}
	return c.err.Error()
}

func (c *choice) Unwrap() error { return c.err }

// RetryIn is err, after which the job is retried in this time instead of Sidekiq's, if a retry is left.
func RetryIn(delay time.Duration, err error) error { return &choice{isRetried, delay, err} }

// Kill is err, after which the job is dead, whatever its retries.
func Kill(err error) error { return &choice{isDead, 0, err} }

// Discard is err, after which the job is dropped; its batch counts it as done.
func Discard(err error) error { return &choice{isDropped, 0, err} }

// Snooze returns the job to the schedule for this time; that is no failure, and counts no attempt.
func Snooze(delay time.Duration) error { return &choice{isPutOff, delay, nil} }

// failure is why a run of a job failed.
type failure struct {
	class, message string
	trace          []string // the line of the error first
	delay          func() (time.Duration, bool)
	fate           fate // isDone: as the rules say
}

// failed is the outcome of a job that failed, by the rules of Sidekiq.
func failed(job *stored, f failure, o *HandlerOptions, now float64) *outcome {
	count := job.attempt()
	limit, retries := job.limit(o)
	if f.fate == isDropped || !retries && f.fate != isDead {
		return &outcome{fate: isDropped, failed: true, chosen: f.fate == isDropped, errClass: f.class, errorText: f.message}
	}
	changes := append(errorFields(job, f, o, now), field{"retry_count", strconv.AppendInt(nil, int64(count), 10)})
	if f.fate == isDead || job.exhausted(count, limit, o, now) {
		return buried(job, f, o, changes)
	}
	delay := defaultDelay(count)
	if f.delay != nil {
		if asked, chosen := f.delay(); chosen && asked >= 0 {
			delay = asked.Seconds()
		}
	}
	return ending(job, isRetried, f, changes, now+min(delay, longestDelay))
}

// defaultDelay is the delay of Sidekiq 8, in seconds.
func defaultDelay(count int) float64 {
	return math.Pow(float64(count), 4) + 15 + float64(rand.IntN(10*(count+1)))
}

// buried keeps the job in dead, or drops it.
func buried(job *stored, f failure, o *HandlerOptions, changes []field) *outcome {
	if job.setting("dead", o.Dead) == "false" {
		return &outcome{fate: isDropped, failed: true, errClass: f.class, errorText: f.message}
	}
	return ending(job, isDead, f, changes, 0, "crash_count")
}

func ending(job *stored, kind fate, f failure, changes []field, at float64, remove ...string) *outcome {
	remove = append(remove, "at")
	for _, name := range []string{"error_backtrace", "misfits", "misfit_at"} {
		if !slices.ContainsFunc(changes, func(c field) bool { return c.name == name }) {
			remove = append(remove, name)
		}
	}
	return &outcome{
		fate: kind, at: at, payload: job.members.splice(changes, remove...), failed: true, errClass: f.class, errorText: f.message,
	}
}

// misfit is the outcome of a job that this worker cannot run: its class is unknown here, or its arguments are others.
// Other servers get it, for an hour; it counts no attempt.
func misfit(job *stored, f failure, now float64) *outcome {
	since, before := asTime(job.members.get("misfit_at"))
	number := 1
	if before {
		earlier, _ := asCount(job.members.get("misfits"))
		number = earlier + 1
	}
	changes := append(job.known(), errorTexts(f)...)
	changes = append(changes, field{"jid", quoted(job.id)}, field{"queue", quoted(job.queue)}, field{"misfits", strconv.AppendInt(nil, int64(number), 10)})
	if _, known := asTime(job.members.get("failed_at")); !known {
		changes = append(changes, field{"failed_at", timeText(now)})
	}
	if _, known := asCount(job.members.get("retry_count")); known {
		changes = append(changes, field{"retried_at", timeText(now)})
	}
	var found *outcome
	if before && number > minMisfits && now-since >= misfitSeconds {
		found = ending(job, isDead, f, changes, 0, "crash_count")
	} else {
		if !before {
			since = now
		}
		changes = append(changes, field{"misfit_at", timeText(min(since, now))})
		delay := misfitDelays[min(number, len(misfitDelays))-1]
		found = ending(job, isRetried, f, changes, now+float64(delay+rand.IntN(delay/2+1)))
		found.failed = false
	}
	found.misfit = true
	return found
}

// refused is the outcome of bytes that are no job: dead, as they are or, of an object, with the reason.
func refused(raw, queue, reason string, now float64) *outcome {
	found := &outcome{fate: isDead, failed: true, errClass: badMessage, errorText: reason}
	about, err := parseMembers([]byte(raw))
	if err != nil {
		return found
	}
	job := &stored{raw: raw, members: about, queue: queue}
	changes := append(errorTexts(failure{class: badMessage, message: reason}), job.failureTimes(now)...)
	if !about.has("queue") {
		changes = append(changes, field{"queue", quoted(queue)})
	}
	found.payload = about.splice(changes)
	return found
}

// givenBack is the outcome of a job that has started and returns to its queue: it does not expire any more.
func givenBack(job *stored, hasStarted bool) *outcome {
	found := &outcome{fate: isGivenBack}
	if remove := job.started(); hasStarted && len(remove) > 0 {
		found.payload = job.members.splice(nil, remove...)
	}
	return found
}

// putOff is the outcome of a job that is snoozed.
func putOff(job *stored, at float64) *outcome {
	return &outcome{fate: isPutOff, at: min(at, latest), payload: job.named(job.started()...)}
}

// named is the job with its id and queue, and without these members; empty if nothing changes.
func (job *stored) named(remove ...string) []byte {
	var changes []field
	for name, value := range map[string]string{"jid": job.id, "queue": job.queue} {
		if stored, err := job.members.text(name); err != nil || stored != value {
			changes = append(changes, field{name, quoted(value)})
		}
	}
	if len(remove)+len(changes) == 0 {
		return nil
	}
	return job.members.splice(changes, remove...)
}

// started are the fields to remove from a job that has run, and runs again without a failure.
func (job *stored) started() []string {
	var remove []string
	for _, one := range job.members {
		if one.name == "expiry" {
			remove = append(remove, one.name)
		}
	}
	if job.members.get("misfit_at") != nil {
		remove = append(remove, "misfits", "misfit_at")
		if _, failed := job.firstFailure(); !failed {
			remove = append(remove, "failed_at")
		}
	}
	return remove
}

// setting is the JSON text of a field of the job or, without one, of an option of its handler; empty if neither is given.
func (job *stored) setting(name string, option Setting) string {
	if job.members.has(name) {
		return string(job.members.get(name))
	}
	return option.text()
}

// limit is the number of retries; false if a failed job is dropped.
func (job *stored) limit(o *HandlerOptions) (int, bool) {
	most := maxRetries
	unlimited := most
	if count, known := asCount(job.members.get("retry_max")); known {
		unlimited = count
	}
	text := job.setting("retry", o.Retry)
	if text == "" {
		return unlimited, true
	}
	if text[0] == '"' {
		if text = strings.TrimSpace(unquoted([]byte(text))); text != "false" && strings.Trim(text, "0123456789") != "" {
			text = "true"
		}
	}
	switch text {
	case "true":
		return unlimited, true
	case "false":
		return 0, false
	}
	number, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return most, true
	}
	return int(min(max(0, math.Floor(number)), maxCount)), true
}

// exhausted is true if no retry is left; retry_for replaces the number.
func (job *stored) exhausted(count, limit int, o *HandlerOptions, now float64) bool {
	keep, known := asSeconds(job.members.get("retry_for"))
	if !known && !job.hasNumber() && o.RetryFor > 0 {
		keep, known = o.RetryFor.Seconds(), true
	}
	if !known {
		return count >= limit
	}
	first, failed := job.firstFailure()
	if !failed {
		first = now
	}
	return first+keep < now
}

// hasNumber is true if the job says how often it is retried.
func (job *stored) hasNumber() bool {
	retry := string(job.members.get("retry"))
	return retry != "" && retry != "null" && retry != "true" && retry != "false" || job.members.has("retry_max")
}

// firstFailure is the time of it; false before it. A misfit, which is none, has written its own time.
func (job *stored) firstFailure() (float64, bool) {
	failedAt, known := asTime(job.members.get("failed_at"))
	misfitAt, isMisfit := asTime(job.members.get("misfit_at"))
	return failedAt, known && !(isMisfit && failedAt == misfitAt)
}

func errorFields(job *stored, f failure, o *HandlerOptions, now float64) []field {
	queue := job.queue
	if other, err := job.members.text("retry_queue"); err == nil && checkQueue("", other) == nil {
		queue = other
	}
	found := append([]field{{"jid", quoted(job.id)}, {"queue", quoted(queue)}}, errorTexts(f)...)
	found = append(append(found, job.known()...), job.failureTimes(now)...)
	if lines := job.backtrace(f.trace, o); len(lines) > 0 {
		found = append(found, field{"error_backtrace", quoted(compressed(lines))})
	}
	return found
}

func errorTexts(f failure) []field {
	return []field{{"error_message", quoted(cut(f.message, maxErrorMessage))}, {"error_class", quoted(f.class)}}
}

// known are times in a form that every Sidekiq reads.
func (job *stored) known() []field {
	var found []field
	for _, name := range []string{"created_at", "enqueued_at", "failed_at"} {
		if at, changed := rewritten(job.members.get(name)); changed {
			found = append(found, field{name, timeText(at)})
		}
	}
	return found
}

func (job *stored) failureTimes(now float64) []field {
	var found []field
	_, again := job.firstFailure()
	if !again {
		found = append(found, field{"failed_at", timeText(now)})
	}
	if _, retried := asCount(job.members.get("retry_count")); again || retried {
		found = append(found, field{"retried_at", timeText(now)})
	}
	return found
}

// backtrace are the lines to keep, within the limits of their number and their size.
func (job *stored) backtrace(lines []string, o *HandlerOptions) []string {
	wanted := 0
	if raw := job.setting("backtrace", o.Backtrace); raw == "true" {
		wanted = maxTraceLines
	} else {
		wanted, _ = asCount([]byte(raw))
	}
	lines = lines[:min(len(lines), wanted, maxTraceLines)]
	room := maxTraceBytes
	for i, line := range lines {
		if room -= len(line); room < 0 {
			return lines[:i]
		}
	}
	return lines
}

// compressed is error_backtrace as Sidekiq writes it: base64 of the deflated JSON list.
func compressed(lines []string) string {
	list, _ := encode(lines, "backtrace") // texts
	var out bytes.Buffer
	w := zlib.NewWriter(&out)
	_, _ = w.Write(list) // a buffer takes it
	_ = w.Close()
	return base64.StdEncoding.EncodeToString(out.Bytes())
}

// classOf is the error_class of an error: the type of the first error in its chain that is not of the standard library
// for texts alone.
func classOf(err error) string {
	for one := err; one != nil; one = errors.Unwrap(one) {
		switch name := reflect.TypeOf(one).String(); name {
		case "*errors.errorString", "*fmt.wrapError", "*errors.joinError", "*fmt.wrapErrors", "*pyworkers.choice":
		default:
			return strings.TrimPrefix(name, "*")
		}
	}
	return "error"
}
