package pyworkers

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// vectors are made by Python: python -m contrib.clients.wire
type vectors struct {
	Canonical []struct{ Name, JSON, Canonical, Refused string }
	Keys      []struct {
		Name, Class, Queue, Args, By, Key string
		Until                             UniqueUntil `json:"unique_until"`
	} `json:"unique_keys"`
	Sealed []struct {
		Name, JID, Class, Args, Nonce, Sealed, Refused string
		Keys                                           []string
	}
	Digests   []struct{ Name, Key, Args, HMAC string }
	Envelopes []struct {
		Name, List, Payload, Refused string
		Score                        float64
		Enqueue                      enqueueCall
	}
	Pushes []struct {
		Name, Namespace string
		Enqueue         []enqueueCall
		Keys, Argv      []string
		Plain           [][]string
	}
	Statuses []struct {
		Name  string
		Hash  map[string]string
		Final bool
		// Status has numbers where Status has times.
		Status struct {
			State    State
			Queue    string
			Attempt  int
			Progress *struct {
				Done  float64
				Total *float64
				Text  string
			}
			StartedAt  float64 `json:"started_at"`
			FinishedAt float64 `json:"finished_at"`
			Error      string
		}
	}
	Answers []struct {
		Name, Value, Refused string
		Answer               answer
	}
	Starts []struct {
		Name    string
		Job     json.RawMessage
		Now     float64
		Effects []vectorEffect
	}
	Ends []struct {
		Name, Ending, Result string
		Job                  json.RawMessage
		Now                  float64
		ErrorClass           string `json:"error_class"`
		ErrorMessage         string `json:"error_message"`
		Effects              []vectorEffect
	}
	Failures []struct {
		Name, Raised, Stored string
		Now                  float64
		Error                []string
		Fate                 int
		At                   []float64
		Payload              json.RawMessage
	}
	Following []struct {
		Name, Result string
		Then         json.RawMessage
		Now          float64
		Pushes       []struct{ Queue, Job string }
	}
}

// vectorEffect has the keys and the arguments of an effect as texts.
type vectorEffect struct {
	name       string
	keys, args []string
}

func (e *vectorEffect) UnmarshalJSON(raw []byte) error {
	return json.Unmarshal(raw, &[]any{&e.name, &e.keys, &e.args})
}

type enqueueCall struct {
	Queue, Class, Args, JID, Batch, Nonce string
	Now, At                               float64
	Keys                                  []string
	Options                               map[string]json.RawMessage
}

func readVectors(t *testing.T) vectors {
	t.Helper()
	text, err := os.ReadFile("../wire/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var found vectors
	if err := json.Unmarshal(text, &found); err != nil {
		t.Fatal(err)
	}
	return found
}

func TestCanonicalArguments(t *testing.T) {
	for _, v := range readVectors(t).Canonical {
		found, err := canonical([]byte(v.JSON), "args")
		if (err != nil) != (v.Refused != "") || string(found) != v.Canonical {
			t.Errorf("%s: %s is %s (%v), not %s %s", v.Name, v.JSON, found, err, v.Canonical, v.Refused)
		}
	}
}

func TestKeysOfLocks(t *testing.T) {
	for _, v := range readVectors(t).Keys {
		job := Job{Queue: v.Queue, Class: v.Class, Options: Options{UniqueFor: time.Minute, UniqueUntil: v.Until}}
		if v.By != "" {
			job.UniqueBy = json.RawMessage(v.By)
		}
		if key, err := (making{}).uniqueKey(&job, []byte(v.Args)); key != v.Key {
			t.Errorf("%s: %s (%v), not %s", v.Name, key, err, v.Key)
		}
	}
}

func keyring(t *testing.T, keys []string) *Keyring {
	t.Helper()
	if keys == nil {
		return nil
	}
	ring, err := ParseKeys(strings.Join(keys, "\n"))
	if err != nil {
		t.Fatal(err)
	}
	return ring
}

func TestSealedArguments(t *testing.T) {
	for _, v := range readVectors(t).Sealed {
		ring := keyring(t, v.Keys)
		if v.Nonce != "" {
			nonce, _ := hex.DecodeString(v.Nonce)
			sealed, err := making{keys: ring, nonce: nonce}.seal([]byte(v.Args), v.JID, v.Class)
			if string(sealed) != `["`+v.Sealed+`"]` {
				t.Errorf("%s: sealed as %s (%v), not %s", v.Name, sealed, err, v.Sealed)
			}
		}
		args, err := ring.Open(v.Sealed, v.JID, v.Class)
		if (err != nil) != (v.Refused != "") {
			t.Errorf("%s: %v, not %q", v.Name, err, v.Refused)
		} else if err == nil && !equalJSON(mustJSON(args), []byte(v.Args)) {
			t.Errorf("%s: opened as %s, not %s", v.Name, mustJSON(args), v.Args)
		}
	}
	for _, v := range readVectors(t).Digests {
		text, err := canonical([]byte(v.Args), "args")
		if err != nil {
			t.Fatal(err)
		}
		digest, err := making{keys: keyring(t, []string{v.Key})}.digest(text)
		if hex.EncodeToString(digest)[:32] != v.HMAC {
			t.Errorf("%s: %x (%v), not %s", v.Name, digest, err, v.HMAC)
		}
	}
}

// job is the call in Go's form; false for one that does not compile, or that a zero value leaves out.
func (call enqueueCall) job(t *testing.T) (Job, bool) {
	job := Job{Queue: call.Queue, Class: call.Class}
	job.ID = call.JID
	job.At = timeOf(call.At)
	var args []json.RawMessage
	if json.Unmarshal([]byte(call.Args), &args) != nil {
		return job, false
	}
	for _, arg := range args {
		job.Args = append(job.Args, arg)
	}
	for name, raw := range call.Options {
		var value any
		if err := json.Unmarshal(raw, &value); err != nil {
			t.Fatal(err)
		}
		number, isNumber := value.(float64)
		if isNumber && number == 0 {
			return job, false
		}
		life := time.Duration(number * float64(time.Second))
		switch name {
		case "retry":
			job.Retry = setting(value)
		case "retry_max":
			job.RetryMax = setting(value)
		case "backtrace":
			job.Backtrace = setting(value)
		case "dead":
			job.Dead = setting(value)
		case "retry_for":
			job.RetryFor = life
		case "retry_queue":
			job.RetryQueue = value.(string)
		case "tags":
			for _, tag := range value.([]any) {
				job.Tags = append(job.Tags, tag.(string))
			}
		case "timeout":
			job.Timeout = life
		case "expires_in":
			job.ExpiresIn = life
		case "track":
			job.Track = life
		case "history":
			job.History = value.(bool)
		case "unique_for":
			job.UniqueFor = life
		case "unique_until":
			job.UniqueUntil = UniqueUntil(value.(string))
		case "unique_by":
			job.UniqueBy = raw
		case "on_duplicate":
			job.OnDuplicate = OnDuplicate(value.(string))
		case "max_waiting":
			job.MaxWaiting = int(number)
		case "encrypt":
			job.Encrypt = value.(bool)
		case "extra":
			job.Extra = value.(map[string]any)
		default:
			return job, false
		}
	}
	return job, true
}

func setting(value any) Setting {
	if number, isNumber := value.(float64); isNumber {
		return Count(int(number))
	}
	return Setting{value}
}

func timeOf(at float64) time.Time {
	if at == 0 {
		return time.Time{}
	}
	return time.UnixMicro(int64(at * 1e6))
}

func (call enqueueCall) making(t *testing.T) making {
	m := making{now: timeOf(call.Now), batch: call.Batch, keys: keyring(t, call.Keys)}
	if call.Nonce != "" {
		m.nonce, _ = hex.DecodeString(call.Nonce)
	}
	return m
}

func TestEnvelopes(t *testing.T) {
	for _, v := range readVectors(t).Envelopes {
		job, expressible := v.Enqueue.job(t)
		if !expressible {
			continue
		}
		made, err := v.Enqueue.making(t).envelope(&job)
		if v.Refused != "" {
			if err == nil {
				t.Errorf("%s: %s, not refused", v.Name, made.payload)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", v.Name, err)
		} else if !equalJSON(made.payload, []byte(v.Payload)) || made.at != v.Score {
			t.Errorf("%s:\n%s at %v, not\n%s at %v", v.Name, made.payload, made.at, v.Payload, v.Score)
		}
	}
}

func TestCallsOfThePush(t *testing.T) {
	for _, v := range readVectors(t).Pushes {
		if len(v.Enqueue) == 0 {
			continue
		}
		var jobs []*envelope
		for _, call := range v.Enqueue {
			job, _ := call.job(t)
			made, err := call.making(t).envelope(&job)
			if err != nil {
				t.Fatalf("%s: %v", v.Name, err)
			}
			jobs = append(jobs, made)
		}
		client := &Client{ns: v.Namespace}
		if v.Plain != nil {
			for i, command := range client.plain(jobs) {
				if !sameArguments(texts(command), v.Plain[i]) {
					t.Errorf("%s: %v, not %v", v.Name, texts(command), v.Plain[i])
				}
			}
			continue
		}
		keys, args := client.pushCall(jobs)
		if !reflect.DeepEqual(keys, v.Keys) || !sameCall(texts(args), v.Argv) {
			t.Errorf("%s:\n%q %q, not\n%q %q", v.Name, keys, texts(args), v.Keys, v.Argv)
		}
	}
}

func TestStatusesAndAnswers(t *testing.T) {
	found := readVectors(t)
	for _, v := range found.Statuses {
		values := make([]any, len(statusFields))
		for i, name := range statusFields {
			if text, known := v.Hash[name.(string)]; known {
				values[i] = text
			}
		}
		status, want := readStatus(values), v.Status
		same := status.State == want.State && status.Queue == want.Queue && status.Attempt == want.Attempt &&
			status.StartedAt.Equal(timeOf(want.StartedAt)) && status.FinishedAt.Equal(timeOf(want.FinishedAt)) &&
			status.Error == want.Error && (status.Progress == nil) == (want.Progress == nil) && status.State.Final() == v.Final
		if same && status.Progress != nil {
			same = reflect.DeepEqual(*status.Progress, Progress(*want.Progress))
		}
		if !same {
			t.Errorf("%s: %+v, not %+v", v.Name, status, want)
		}
	}
	for _, v := range found.Answers {
		end := readAnswer(v.Value)
		if (end == nil) != (v.Refused != "") {
			t.Errorf("%s: %+v, not %q", v.Name, end, v.Refused)
		} else if end != nil && end.State == Done && !equalJSON(end.Result, v.Answer.Result) {
			t.Errorf("%s: %s, not %s", v.Name, end.Result, v.Answer.Result)
		} else if end != nil {
			end.Result, v.Answer.Result = nil, nil
			if !reflect.DeepEqual(*end, v.Answer) {
				t.Errorf("%s: %+v, not %+v", v.Name, *end, v.Answer)
			}
		}
	}
}

func equalJSON(a, b []byte) bool {
	var one, other any
	return json.Unmarshal(a, &one) == nil && json.Unmarshal(b, &other) == nil && reflect.DeepEqual(one, other)
}

func mustJSON(value any) []byte {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return text
}

// texts are arguments as they are sent.
func texts(args []any) []string {
	found := make([]string, len(args))
	for i, arg := range args {
		switch arg := arg.(type) {
		case []byte:
			found[i] = string(arg)
		case string:
			found[i] = arg
		case *envelope:
			found[i] = string(arg.payload)
		default:
			found[i] = string(mustJSON(arg))
		}
	}
	return found
}

func sameArguments(found, want []string) bool {
	if len(found) != len(want) {
		return false
	}
	for i := range found {
		if found[i] != want[i] && !(strings.HasPrefix(want[i], "{") && equalJSON([]byte(found[i]), []byte(want[i]))) {
			return false
		}
	}
	return true
}

// sameCall compares the arguments of push.lua, in which the order of the options is free.
func sameCall(found, want []string) bool {
	return reflect.DeepEqual(parseCall(found), parseCall(want))
}

func parseCall(argv []string) any {
	var queues, jobs int
	_ = json.Unmarshal([]byte(argv[0]), &jobs)
	_ = json.Unmarshal([]byte(argv[1]), &queues)
	found := []any{argv[:2+queues], argv[len(argv)-1]}
	for at := 2 + queues; jobs > 0; jobs-- {
		var payload any
		var number int
		_ = json.Unmarshal([]byte(argv[at+2]), &payload)
		_ = json.Unmarshal([]byte(argv[at+3]), &number)
		options := map[string]string{"on_duplicate": "skip"}
		for i := range number {
			options[argv[at+4+2*i]] = argv[at+5+2*i]
		}
		found = append(found, argv[at:at+2], payload, options)
		at += 4 + 2*number
	}
	return found
}

func sameEffects(t *testing.T, name string, found []effect, want []vectorEffect) {
	t.Helper()
	if len(found) != len(want) {
		t.Errorf("%s: %v, not %v", name, found, want)
		return
	}
	for i, one := range found {
		if one.name != want[i].name || !slices.Equal(one.keys, want[i].keys) || !sameArguments(texts(one.args), want[i].args) {
			t.Errorf("%s: %s%q%q, not %v", name, one.name, one.keys, texts(one.args), want[i])
		}
	}
}

func jobOf(t *testing.T, raw json.RawMessage) *stored {
	t.Helper()
	job, err := parseJob(string(raw), "mail")
	if err != nil {
		t.Fatal(err)
	}
	return job
}

func TestStartsHaveTheEffectsOfTheVectors(t *testing.T) {
	for _, one := range readVectors(t).Starts {
		sameEffects(t, one.Name, starts(jobOf(t, one.Job), one.Now, "host:7"), one.Effects)
	}
}

func TestEndsHaveTheEffectsOfTheVectors(t *testing.T) {
	for _, one := range readVectors(t).Ends {
		e := ended{job: jobOf(t, one.Job), ending: one.Ending, now: one.Now, errClass: one.ErrorClass, errorText: one.ErrorMessage}
		if one.Result != "" {
			e.result = []byte(one.Result)
		}
		found, err := ends(e)
		if err != nil {
			t.Errorf("%s: %v", one.Name, err)
		}
		sameEffects(t, one.Name, found, one.Effects)
	}
}

func TestStepsThatFollowAreThoseOfTheVectors(t *testing.T) {
	for _, one := range readVectors(t).Following {
		if one.Then == nil { // what follows a group is pushed by a script
			continue
		}
		found, err := following(one.Then, []byte(one.Result), one.Now)
		if err != nil || len(found) != len(one.Pushes) {
			t.Errorf("%s: %v (%v)", one.Name, found, err)
			continue
		}
		for i, push := range found {
			if push.args[0] != one.Pushes[i].Queue || !equalJSON(push.args[1].([]byte), []byte(one.Pushes[i].Job)) {
				t.Errorf("%s: %s, not %v", one.Name, push.args[1], one.Pushes[i])
			}
		}
	}
}

// asValue is JSON with its numbers as texts: floats of any form are the same, and no integer is rounded.
func asValue(t *testing.T, raw []byte) any {
	t.Helper()
	var value any
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return value
}

func TestFailuresHaveTheOutcomesOfTheVectors(t *testing.T) {
	for _, one := range readVectors(t).Failures {
		var found *outcome
		job, err := parseJob(one.Stored, "mail")
		if one.Raised != "invalid" && err != nil {
			t.Fatalf("%s: %v", one.Name, err)
		}
		if job != nil && !job.members.has("jid") {
			job.id = "c0ffee0123456789abcdef01"
		}
		f := failure{}
		if len(one.Error) > 0 {
			f = failure{class: one.Error[0], message: one.Error[1]}
		}
		switch one.Raised {
		case "failed":
			found = failed(job, f, &HandlerOptions{}, one.Now)
		case "misfit":
			found = misfit(job, f, one.Now)
		case "invalid":
			found = refused(one.Stored, "mail", f.message, one.Now)
		case "given back":
			found = givenBack(job, true)
		}
		if int(found.fate) != one.Fate {
			t.Errorf("%s: the fate is %d, not %d", one.Name, found.fate, one.Fate)
		}
		if len(one.At) == 2 && (found.at < one.At[0] || found.at > one.At[1]) {
			t.Errorf("%s: at %f, not %v", one.Name, found.at, one.At)
		}
		if isNull := string(one.Payload) == "null"; isNull != (found.payload == nil) || !isNull && !reflect.DeepEqual(asValue(t, found.payload), asValue(t, one.Payload)) {
			t.Errorf("%s: %s, not %s", one.Name, found.payload, one.Payload)
		}
	}
}
