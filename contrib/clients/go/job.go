package pyworkers

import (
	"bufio"
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"
)

// Job is a job to be enqueued: the handler Class in Queue is called with Args.
type Job struct {
	Queue string
	Class string
	// Args are the positional arguments: what encoding/json can write.
	Args []any
	Options
}

// Options are the options of a job. The zero value of each one leaves it to the handler, or asks for nothing.
type Options struct {
	// ID is the jid; by default 24 random hexadecimal digits.
	ID string
	// At and In say when the job is due; it is due now if neither does, or if that time has passed.
	At time.Time
	In time.Duration

	// Retry is Yes for 25 retries, No to drop a failed job, or Count(n).
	Retry Setting
	// RetryMax is the number of retries if Retry is Yes; RetryFor a time instead of a number.
	RetryMax Setting
	RetryFor time.Duration
	// RetryQueue is the queue of the retries.
	RetryQueue string
	// Dead is No to drop a job whose retries are used up.
	Dead Setting
	// Backtrace are the lines of the traceback to keep: Yes, No or Count(n).
	Backtrace Setting
	// Timeout is how long the job may run.
	Timeout time.Duration
	// ExpiresIn drops a job that has not started within this time after it was due.
	ExpiresIn time.Duration
	// Tags are shown by Sidekiq's Web UI.
	Tags []string

	// Track keeps status and result for this time after the end, for [Client.Status] and [Client.Result].
	Track time.Duration
	// History also keeps the job as it was enqueued, and its runs.
	History bool

	// UniqueFor makes a job with the same class, queue and arguments a duplicate for this time after it is due.
	UniqueFor time.Duration
	// UniqueUntil ends that earlier; by default UntilSuccess.
	UniqueUntil UniqueUntil
	// UniqueBy is what counts as the same, instead of the arguments.
	UniqueBy any
	// OnDuplicate is what a duplicate does; by default Skip.
	OnDuplicate OnDuplicate
	// MaxWaiting refuses a job that is due now if its queue holds this many, after Wait.
	MaxWaiting int
	Wait       time.Duration

	// Encrypt seals the arguments with the newest key of the client.
	Encrypt bool
	// Extra are fields of the application's own.
	Extra map[string]any
}

// Setting is an option that is [Yes], [No] or a [Count].
type Setting struct{ value any }

// The settings that are not a number.
var (
	Yes = Setting{true}
	No  = Setting{false}
)

// Count is the setting of a number from 0.
func Count(n int) Setting { return Setting{n} }

// UniqueUntil is when the lock of a unique job ends, if its time has not passed.
type UniqueUntil string

// When a lock ends: the job is done or dead, it starts, or never before its time.
const (
	UntilSuccess UniqueUntil = "success"
	UntilStart   UniqueUntil = "start"
	UntilExpiry  UniqueUntil = "expiry"
)

// OnDuplicate is what the enqueueing of a duplicate does.
type OnDuplicate string

// Skip returns the id of the job that is there, Raise fails with a [DuplicateError], and Replace takes the place of a
// job that is still scheduled, and skips otherwise.
const (
	Skip    OnDuplicate = "skip"
	Raise   OnDuplicate = "raise"
	Replace OnDuplicate = "replace"
)

const (
	// A job is at most as large as any server reads.
	maxBytes = 128 << 20
	// Most jobs are not larger.
	usualBytes = 256
)

const (
	// How long the status of a job is kept after its last change, until the job has ended.
	aliveSeconds = 30 * 86400
	// The longest time of an option.
	longestSeconds = 1e9
)

var (
	// Fields that an application has no say in.
	reserved = strings.Fields(`args class queue at created_at enqueued_at expiry cron unique_key encrypted failed_at
		retried_at discarded_at retry_count crash_count misfits misfit_at error_class error_message error_backtrace
		batch batch_index then fill checkpoint`)
	optional = strings.Fields(`retry backtrace dead tags retry_for expires_in retry_queue retry_max timeout track history
		unique_for unique_until unique_by on_duplicate max_waiting wait encrypt jid extra`)
)

// envelope is a job as it is pushed.
type envelope struct {
	queue, id string
	payload   []byte
	at        float64 // epoch seconds, 0: now
	asked     []any   // names and values of the options of push.lua
	lock      string  // unique:KEY
	batch     string
	// conditional: it asks for more than to be a member of its batch.
	conditional bool
	limit       int
	wait        time.Duration
}

// MarshalBinary is for go-redis: an envelope among the arguments of a command is its payload.
func (e *envelope) MarshalBinary() ([]byte, error) { return e.payload, nil }

func (e *envelope) isConditional() bool { return e.conditional }

// making is how envelopes are made: with which keys, at what time, as members of which batch, and for what.
type making struct {
	keys   *Keyring
	now    time.Time
	stamp  []byte // now as text, if it is made already
	batch  string
	role   role
	isLast bool   // of a chain: its result is kept
	nonce  []byte // for tests
}

// role is what a job is for. A server pushes steps and callbacks, so nothing is asked of a push of theirs.
type role int

const (
	alone role = iota
	callback
	firstStep
	step
)

func (m making) envelope(job *Job) (*envelope, error) {
	found := new(envelope)
	return found, m.make(found, job, make([]byte, 0, usualBytes))
}

// make writes the envelope of a job into room, if it has enough.
func (m making) make(found *envelope, job *Job, room []byte) error {
	if err := job.check(); err != nil {
		return err
	}
	if m.role != alone {
		if err := job.checkLater(); err != nil {
			return err
		}
	}
	*found = envelope{queue: job.Queue, id: job.ID, batch: m.batch, limit: job.MaxWaiting, wait: job.Wait}
	if found.id == "" {
		found.id = newID()
	}
	now := seconds(m.now)
	if m.stamp == nil {
		m.stamp = appendTime(nil, now)
	}
	due := now
	if at := job.due(m.now); at.After(m.now) {
		due = seconds(at)
		found.at = due
	}
	var fills *[][]any
	if m.role == step {
		fills = new([][]any)
	}
	w := fields{out: room[:0]}
	w.setting("retry", job.Retry)
	w.text("queue", job.Queue)
	w.text("class", job.Class)
	w.name("args")
	start := len(w.out)
	out, err := appendArgs(w.out, job.Args, m.role, fills)
	if err != nil {
		return err
	}
	w.out = out
	key, err := m.uniqueKey(job, out[start:])
	if err != nil {
		return err
	}
	if job.Encrypt {
		if fills != nil && len(*fills) > 0 {
			return &ArgumentError{"args", "of an encrypted job cannot be a result", nil}
		}
		sealed, err := m.seal(out[start:], found.id, job.Class)
		if err != nil {
			return err
		}
		w.out = append(out[:start], sealed...)
	}
	if err := w.options(&job.Options); err != nil {
		return err
	}
	w.text("jid", found.id)
	if key != "" {
		w.text("unique_key", key)
	}
	if fills != nil && len(*fills) > 0 {
		places, err := encode(map[string]any{"RESULT": *fills}, "fill")
		if err != nil {
			return err
		}
		w.raw("fill", places)
	}
	if m.batch != "" {
		w.text("batch", m.batch)
	}
	if m.isLast {
		w.raw("batch_index", []byte("0"))
	}
	// These are the last ones: a script changes them in a callback.
	w.raw("created_at", m.stamp)
	if found.at == 0 && (m.role == alone || m.role == firstStep) {
		w.raw("enqueued_at", m.stamp)
	}
	if job.ExpiresIn > 0 {
		w.name("expiry")
		w.out = appendTime(w.out, due+job.ExpiresIn.Seconds())
	}
	found.payload = append(w.out, '}')
	if len(found.payload) > maxBytes {
		return tooLarge(len(found.payload))
	}
	found.ask(job, key, due-now)
	return nil
}

func tooLarge(size int) error {
	return &ArgumentError{"args", fmt.Sprintf("make a job of %d bytes; the limit is %d", size, maxBytes), nil}
}

// ask notes the options of push.lua; most jobs have none. The job is due in delay seconds.
func (e *envelope) ask(job *Job, key string, delay float64) {
	if job.MaxWaiting > 0 {
		e.asked = append(e.asked, "max_waiting", job.MaxWaiting)
	}
	if key != "" {
		e.lock = "unique:" + key
		e.asked = append(e.asked, "lock", max(1, int64((job.UniqueFor.Seconds()+delay)*1000)))
		if job.OnDuplicate != "" {
			e.asked = append(e.asked, "on_duplicate", string(job.OnDuplicate))
		}
	}
	if job.Track > 0 && isPrintable(e.id) {
		e.asked = append(e.asked, "status", int64(min(aliveSeconds+math.Trunc(delay), longestSeconds)))
		if job.History {
			e.asked = append(e.asked, "history", 1)
		}
	}
	e.conditional = len(e.asked) > 0
	if e.batch != "" {
		e.asked = append(e.asked, "batch", e.batch)
	}
}

func (job *Job) due(now time.Time) time.Time {
	if job.In > 0 {
		return now.Add(job.In)
	}
	return job.At
}

func (job *Job) check() error {
	if err := checkQueue("queue", job.Queue); err != nil {
		return err
	}
	if job.Class == "" || strings.Contains(job.Class, "|") {
		return &ArgumentError{"class", fmt.Sprintf("%q cannot be a job class: a name without '|'", job.Class), nil}
	}
	if !utf8.ValidString(job.Class) {
		return &ArgumentError{"class", fmt.Sprintf("%q is not valid UTF-8", job.Class), nil}
	}
	return job.Options.check()
}

// idle is an option that would have no effect: because of what the job is for, or without another option.
type idle struct {
	name, why string
	isGiven   bool
}

func (i idle) check() error {
	if !i.isGiven {
		return nil
	}
	return &ArgumentError{i.name, "has no effect " + i.why, nil}
}

// checkLater refuses the options that act at a push.
func (o *Options) checkLater() error {
	const why = "on a step or a callback, which a server pushes later"
	return cmp.Or(
		idle{"At", why, !o.At.IsZero()}.check(), idle{"In", why, o.In != 0}.check(),
		idle{"UniqueFor", why, o.UniqueFor != 0}.check(), idle{"MaxWaiting", why, o.MaxWaiting != 0}.check(),
	)
}

func (o *Options) check() error {
	refuse := func(name, rule string, value any) error {
		return &ArgumentError{name, fmt.Sprintf("must be %s, not %v", rule, value), nil}
	}
	switch {
	case !utf8.ValidString(o.ID):
		return &ArgumentError{"ID", "is not valid UTF-8", nil}
	case o.In != 0 && !o.At.IsZero():
		return &ArgumentError{"In", "and At exclude each other", nil}
	case o.In < 0:
		return refuse("In", "a time from 0", o.In)
	case o.At.Unix() > latest:
		return &ArgumentError{"At", "is not a time: write one up to the year 9999", nil}
	case !o.Retry.fits(true, true):
		return refuse("Retry", "Yes, No or a number of retries", o.Retry.value)
	case !o.RetryMax.fits(false, true):
		return refuse("RetryMax", "a number of retries", o.RetryMax.value)
	case !o.Backtrace.fits(true, true):
		return refuse("Backtrace", "Yes, No or a number of lines", o.Backtrace.value)
	case !o.Dead.fits(true, false):
		return refuse("Dead", "Yes or No", o.Dead.value)
	case !slices.Contains([]UniqueUntil{"", UntilSuccess, UntilStart, UntilExpiry}, o.UniqueUntil):
		return refuse("UniqueUntil", "success, start or expiry", o.UniqueUntil)
	case !slices.Contains([]OnDuplicate{"", Skip, Raise, Replace}, o.OnDuplicate):
		return refuse("OnDuplicate", "skip, raise or replace", o.OnDuplicate)
	case o.MaxWaiting < 0:
		return refuse("MaxWaiting", "a number of jobs from 1", o.MaxWaiting)
	case o.Wait < 0:
		return refuse("Wait", "a time from 0", o.Wait)
	}
	for _, life := range []struct {
		name string
		time time.Duration
	}{
		{"RetryFor", o.RetryFor}, {"Timeout", o.Timeout}, {"ExpiresIn", o.ExpiresIn}, {"Track", o.Track},
		{"UniqueFor", o.UniqueFor},
	} {
		if life.time < 0 || life.time > longestSeconds*time.Second {
			return refuse(life.name, "a time above 0 and up to 1e9 seconds", life.time)
		}
	}
	for name := range o.Extra {
		why := "it is an option"
		if !slices.Contains(optional, name) {
			if !slices.Contains(reserved, name) {
				continue
			}
			why = "pyworkers writes it"
		}
		return &ArgumentError{fmt.Sprintf("Extra[%q]", name), "is not a field of your own: " + why, nil}
	}
	if o.RetryQueue != "" {
		if err := checkQueue("RetryQueue", o.RetryQueue); err != nil {
			return err
		}
	}
	return cmp.Or(
		idle{"History", "without Track", o.History && o.Track == 0}.check(),
		idle{"UniqueUntil", "without UniqueFor", o.UniqueUntil != "" && o.UniqueFor == 0}.check(),
		idle{"UniqueBy", "without UniqueFor", o.UniqueBy != nil && o.UniqueFor == 0}.check(),
		idle{"OnDuplicate", "without UniqueFor", o.OnDuplicate != "" && o.UniqueFor == 0}.check(),
		idle{"Wait", "without MaxWaiting", o.Wait > 0 && o.MaxWaiting == 0}.check(),
	)
}

func (s Setting) fits(flag, count bool) bool {
	switch value := s.value.(type) {
	case bool:
		return flag
	case int:
		return count && value >= 0
	}
	return true
}

// text is the setting as JSON; empty for the zero value.
func (s Setting) text() string {
	switch value := s.value.(type) {
	case bool:
		return strconv.FormatBool(value)
	case int:
		return strconv.Itoa(value)
	}
	return ""
}

func checkQueue(field, name string) error {
	if name == "" || strings.IndexFunc(name, isNotOfQueue) >= 0 || utf8.RuneCountInString(name) > 128 || !utf8.ValidString(name) ||
		strings.HasPrefix(name, "queue:") || strings.HasPrefix(name, "backup::") || strings.HasSuffix(name, ":inprogress") {
		return &ArgumentError{field, fmt.Sprintf("%q cannot be a queue: a queue name has 1 to 128 characters, no white space, "+
			"control character or '|', does not start with 'queue:' or 'backup::', and does not end with ':inprogress'", name), nil}
	}
	return nil
}

func isNotOfQueue(char rune) bool {
	return char <= ' ' || char == '|' || char >= 0x7f && (char == 0x7f || unicode.IsSpace(char))
}

// uniqueKey is the key of the lock of a unique job, the same in all languages.
func (m making) uniqueKey(job *Job, args []byte) (string, error) {
	if job.UniqueFor <= 0 {
		return "", nil
	}
	path := "args"
	if job.UniqueBy != nil {
		var err error
		path = "UniqueBy"
		if args, err = encode(job.UniqueBy, path); err != nil {
			return "", err
		}
	}
	text, err := canonical(args, path)
	if err != nil {
		return "", err
	}
	digest := sha256.Sum256(text)
	sum := digest[:]
	if job.Encrypt {
		if sum, err = m.digest(text); err != nil {
			return "", err
		}
	}
	key := shown(job.Class) + "|" + shown(job.Queue) + "|" + hex.EncodeToString(sum)[:32]
	if job.UniqueUntil == UntilExpiry {
		key += "|expiry"
	}
	return key, nil
}

// shown is a name in a key: a long one, or one with the separator, is cut, and ends with a hash.
func shown(name string) string {
	runes := []rune(name)
	if len(runes) <= 64 && !strings.Contains(name, "|") {
		return name
	}
	hash := sha256.Sum256([]byte(name))
	runes = runes[:min(47, len(runes))]
	return strings.ReplaceAll(string(runes), "|", "_") + "…" + hex.EncodeToString(hash[:])[:16]
}

// fields are the members of a JSON object that is being written.
type fields struct{ out []byte }

// name begins a member. No name that is written needs an escape.
func (w *fields) name(name string) {
	separator := byte(',')
	if len(w.out) == 0 {
		separator = '{'
	}
	w.out = append(append(append(w.out, separator, '"'), name...), `":`...)
}

func (w *fields) raw(name string, value []byte) {
	w.name(name)
	w.out = append(w.out, value...)
}

func (w *fields) text(name, value string) {
	w.name(name)
	w.out = appendText(w.out, value)
}

func (w *fields) setting(name string, setting Setting) {
	if text := setting.text(); text != "" {
		w.name(name)
		w.out = append(w.out, text...)
	}
}

func (w *fields) time(name string, value time.Duration) {
	if value > 0 {
		// Whole seconds are written as integers, as Sidekiq Enterprise does.
		w.raw(name, strconv.AppendFloat(nil, value.Seconds(), 'f', -1, 64))
	}
}

func (w *fields) options(o *Options) error {
	w.setting("backtrace", o.Backtrace)
	w.setting("dead", o.Dead)
	w.setting("retry_max", o.RetryMax)
	w.time("retry_for", o.RetryFor)
	if o.RetryQueue != "" {
		w.text("retry_queue", o.RetryQueue)
	}
	w.time("timeout", o.Timeout)
	if len(o.Tags) > 0 {
		tags, err := encode(o.Tags, "Tags")
		if err != nil {
			return err
		}
		w.raw("tags", tags)
	}
	w.time("track", o.Track)
	if o.History {
		w.raw("history", []byte("true"))
	}
	w.time("unique_for", o.UniqueFor)
	if o.UniqueUntil != "" {
		w.text("unique_until", string(o.UniqueUntil))
	}
	if o.Encrypt {
		w.raw("encrypted", []byte("true"))
	}
	if len(o.Extra) > 0 {
		extra, err := encode(o.Extra, "Extra")
		if err != nil {
			return err
		}
		w.out = append(append(w.out, ','), extra[1:len(extra)-1]...)
	}
	return nil
}

// random is read in larger pieces: a system call for each id takes as long as the rest of a small job.
var random = struct {
	sync.Mutex
	source *bufio.Reader
}{source: bufio.NewReader(rand.Reader)}

func newID() string {
	var text [24]byte
	random.Lock()
	defer random.Unlock()
	id, err := random.source.Peek(len(text) / 2)
	if err != nil {
		panic(err) // crypto/rand ends the program before
	}
	hex.Encode(text[:], id)
	_, _ = random.source.Discard(len(id))
	return string(text[:])
}

// seconds are epoch seconds with microseconds, as Python writes them.
func seconds(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }

// appendTime writes epoch seconds with a point: Sidekiq 8 takes whole numbers for milliseconds.
func appendTime(out []byte, at float64) []byte {
	digits := -1
	if at == math.Trunc(at) {
		digits = 1
	}
	return strconv.AppendFloat(out, at, 'f', digits, 64)
}

// isPrintable is true for an id that can be part of a key.
func isPrintable(id string) bool {
	return id != "" && len([]rune(id)) <= 256 && strings.IndexFunc(id, func(r rune) bool { return !strconv.IsPrint(r) }) < 0
}
