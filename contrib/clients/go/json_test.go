package pyworkers

import (
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestValuesOfArguments(t *testing.T) {
	deep := any(1)
	for range maxDepth + 1 {
		deep = []any{deep}
	}
	type named struct {
		Text string `json:"text"`
	}
	for _, v := range []struct {
		value        any
		text, reason string
	}{
		{nil, "null", ""},
		{[]any(nil), "null", ""},
		{map[string]any{"b": 2.0, "a": []any{"<&>", "\u2028", "\x01\ufffd"}}, "{\"a\":[\"<&>\",\"\u2028\",\"\\u0001\ufffd\"],\"b\":2}", ""},
		{named{"<&>\u2028\ufffd"}, "{\"text\":\"<&>\u2028\ufffd\"}", ""},
		{map[string]string{"b": "1", "a": "\\"}, `{"a":"\\","b":"1"}`, ""},
		{json.Number("12345678901234567890123"), "12345678901234567890123", ""},
		{json.RawMessage(` [1 , "\u00e9\/"] `), `[1,"é/"]`, ""},
		{map[string]any{"a": []any{1, math.Inf(1)}}, "", `args[0]["a"][1] is +Inf, which is not a JSON number`},
		{named{"\xff"}, "", `args[0]["text"] is not valid UTF-8`},
		{map[string]any{"\xff": 1}, "", `args[0]["\xff"] has a name that is not valid UTF-8`},
		{[]any{make(chan int)}, "", "args[0][0] is of type chan int, which JSON does not carry"},
		{json.RawMessage(`["\ud800"]`), "", "args[0][0] holds a lone surrogate at character 0"},
		{json.RawMessage(`"é\\\ud83d\ude00a\udc00"`), "", "args[0] holds a lone surrogate at character 4"},
		{json.RawMessage("{"), "", "args[0] cannot be written as JSON"},
		{Result, "", "args[0] is Result, which only a step of a chain can take: use EnqueueChain"},
		{json.RawMessage(strings.Repeat("7", maxDigits+1)), "", "args[0] is an integer of more than 4,300 digits: pass it as a text"},
		{json.RawMessage(`[-1.50e+300]`), "[-1.50e+300]", ""},
		{json.RawMessage("[1e400]"), "", "args[0][0] is +Inf, which is not a JSON number"},
		{json.Number("-1" + strings.Repeat("0", 400) + ".0"), "", "args[0] is -Inf, which is not a JSON number"},
		{deep, "", "args[0][0]… is nested deeper than 500 levels"},
		{json.RawMessage(strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1)), "", "args[0][0]… is nested deeper than 500 levels"},
	} {
		found, err := appendArgs(nil, []any{v.value}, alone, nil)
		var refused *ArgumentError
		if v.reason == "" && string(found) != "["+v.text+"]" {
			t.Errorf("%v is %s (%v), not [%s]", v.value, found, err, v.text)
		} else if v.reason != "" && (!errors.As(err, &refused) || !strings.HasPrefix(err.Error(), v.reason)) {
			t.Errorf("%v: %v, not %s", v.value, err, v.reason)
		}
	}
}

func TestJobsAreSentAThousandOr16MBAtATime(t *testing.T) {
	sizes := func(jobs []*envelope) (found []int) {
		for _, part := range portions(jobs) {
			found = append(found, len(part))
		}
		return found
	}
	large := &envelope{payload: make([]byte, 6<<20)}
	if found := sizes(slices.Repeat([]*envelope{large}, 4)); !slices.Equal(found, []int{3, 1}) {
		t.Errorf("jobs of 6 MB: %v", found)
	}
	if found := sizes(slices.Repeat([]*envelope{{}}, 2001)); !slices.Equal(found, []int{1000, 1000, 1}) {
		t.Errorf("small jobs: %v", found)
	}
}

func TestAnOptionIsRefusedInWords(t *testing.T) {
	for want, options := range map[string]Options{
		"Retry must be Yes, No or a number of retries, not -1":          {Retry: Count(-1)},
		"Dead must be Yes or No, not 1":                                 {Dead: Count(1)},
		"Track must be a time above 0 and up to 1e9 seconds, not -1s":   {Track: -time.Second},
		"UniqueUntil must be success, start or expiry, not never":       {UniqueFor: 1, UniqueUntil: "never"},
		"UniqueBy has no effect without UniqueFor":                      {UniqueBy: 7},
		"History has no effect without Track":                           {History: true},
		"Wait has no effect without MaxWaiting":                         {Wait: 1},
		"At is not a time: write one up to the year 9999":               {At: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)},
		`Extra["track"] is not a field of your own: it is an option`:    {Extra: map[string]any{"track": 1}},
		`Extra["then"] is not a field of your own: pyworkers writes it`: {Extra: map[string]any{"then": 1}},
	} {
		if _, err := (making{}).envelope(&Job{Queue: "mail", Class: "Add", Options: options}); err == nil || err.Error() != want {
			t.Errorf("%v, not %s", err, want)
		}
	}
	callback := &Job{Queue: "mail", Class: "Add", Args: []any{Result}}
	want := "on_success: args[0] is Result, but a callback has no result to take: use EnqueueChain"
	if _, err := (&Client{}).newBatch(BatchOptions{OnSuccess: callback}); err == nil || err.Error() != want {
		t.Errorf("%v, not %s", err, want)
	}
}

func TestACallbackKeepsATextThatLooksLikeAResult(t *testing.T) {
	callback := &Job{Queue: "mail", Class: "Add", Args: []any{map[string]any{"pyworkers": "RESULTS"}}}
	call, err := (&Client{}).newBatch(BatchOptions{OnSuccess: callback})
	if err != nil {
		t.Fatal(err)
	}
	if field := call.fields[len(call.fields)-1].(string); !strings.HasPrefix(field, "mail - {") {
		t.Errorf("%s: the script would replace a value of the user", field)
	}
}

func TestTheFieldsOfAStructAreArguments(t *testing.T) {
	type in struct {
		ID       int
		hidden   int
		Skipped  int    `json:"-"`
		Currency string `json:",omitempty"`
		Note     string `json:",omitzero"`
	}
	for want, value := range map[string]any{
		`[7]`:                 in{ID: 7, hidden: 1, Skipped: 1},
		`[0,"","x"]`:          in{Note: "x"},
		`[7.5]`:               7.5,
		`[{"a":1}]`:           map[string]int{"a": 1},
		`[[1]]`:               []int{1},
		`[]`:                  struct{}{},
		`[12345678901234567]`: json.Number("12345678901234567"),
	} {
		if found, err := appendArgs(nil, argsOf(value), alone, nil); string(found) != want {
			t.Errorf("%#v is %s (%v), not %s", value, found, err, want)
		}
	}
}
