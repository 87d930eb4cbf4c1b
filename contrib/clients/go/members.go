package pyworkers

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// field is a member of a JSON object: its name and the text of its value.
type field struct {
	name string
	text []byte
}

// members are the members of a JSON object in their order; of several with the same name, the last value at the first place.
type members []field

// The levels that an envelope may have: those below an argument, its own, and a few more for other producers.
const maxLevels = maxDepth + 10

// badJob says why bytes are not a job. A job that has this error is dead.
type badJob struct{ reason string }

func (e badJob) Error() string { return e.reason }

func parseMembers(raw []byte) (members, error) {
	raw = bytes.TrimPrefix(raw, []byte("\xef\xbb\xbf"))
	if len(raw) > maxBytes {
		return nil, badJob{fmt.Sprintf("%d bytes are more than the limit of %d", len(raw), maxBytes)}
	}
	if !utf8.Valid(raw) {
		return nil, badJob{"not UTF-8"}
	}
	if !json.Valid(raw) {
		return nil, badJob{"not JSON, or nested too deep"}
	}
	at := skipBlanks(raw, 0)
	if raw[at] != '{' {
		return nil, badJob{"not a JSON object"}
	}
	found := make(members, 0, 16)
	_, err := walk(raw, at, func(name []byte, at int) (int, error) {
		end, levels := skipValue(raw, at)
		if levels >= maxLevels {
			return 0, badJob{fmt.Sprintf("nested deeper than %d levels", maxDepth)}
		}
		found.set(unquoted(name), raw[at:end:end])
		return end, nil
	})
	return found, err
}

func (m *members) set(name string, text []byte) {
	for i := range *m {
		if (*m)[i].name == name {
			(*m)[i].text = text
			return
		}
	}
	*m = append(*m, field{name, text})
}

// get is the text of a value; nil without one.
func (m members) get(name string) json.RawMessage {
	for i := range m {
		if m[i].name == name {
			return m[i].text
		}
	}
	return nil
}

// has is true for a value that is not null.
func (m members) has(name string) bool {
	text := m.get(name)
	return text != nil && string(text) != "null"
}

// text is the value of a field that is a text; empty without one.
func (m members) text(name string) (string, error) {
	raw := m.get(name)
	switch {
	case raw == nil || string(raw) == "null":
		return "", nil
	case raw[0] != '"':
		return "", badJob{fmt.Sprintf("%q is not a string", name)}
	}
	return unquoted(raw), nil
}

// splice is the object with members set or removed; the text of every other one stays.
func (m members) splice(changes []field, remove ...string) []byte {
	kept := slices.Clone(m)
	for _, change := range changes {
		kept.set(change.name, change.text)
	}
	return slices.DeleteFunc(kept, func(one field) bool { return slices.Contains(remove, one.name) }).write(nil)
}

// write adds the JSON text of the object.
func (m members) write(out []byte) []byte {
	out = append(out, '{')
	for i, one := range m {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(appendText(out, one.name), ':'), one.text...)
	}
	return append(out, '}')
}

// walk calls each for every value of the valid list or object that begins at a place: with its name, still quoted, if it
// is a member, and with its place. each returns the end of the value; walk returns the end of the list or object.
func walk(raw []byte, at int, each func(name []byte, at int) (end int, err error)) (int, error) {
	last := raw[at] + 2 // in ASCII, ] and } are two characters after [ and {
	for at = skipBlanks(raw, at+1); raw[at] != last; at = skipBlanks(raw, at) {
		if raw[at] == ',' {
			at = skipBlanks(raw, at+1)
		}
		var name []byte
		if last == '}' {
			end, _ := skipValue(raw, at)
			name, at = raw[at:end], skipBlanks(raw, skipBlanks(raw, end)+1)
		}
		var err error
		if at, err = each(name, at); err != nil {
			return at, err
		}
	}
	return at + 1, nil
}

func skipBlanks(raw []byte, at int) int {
	for raw[at] == ' ' || raw[at] == '\t' || raw[at] == '\n' || raw[at] == '\r' {
		at++
	}
	return at
}

// skipValue is the end of the valid value at a place, and the levels inside it.
func skipValue(raw []byte, at int) (end, levels int) {
	depth := 0
	for {
		switch raw[at] {
		case '"':
			for at++; raw[at] != '"'; at++ {
				if raw[at] == '\\' {
					at++
				}
			}
			at++
		case '{', '[':
			depth++
			levels = max(levels, depth)
			at++
		case '}', ']':
			depth--
			at++
		case ',', ':', ' ', '\t', '\n', '\r':
			at++
			continue
		default:
			for at < len(raw) && !strings.ContainsRune(",:]} \t\n\r", rune(raw[at])) {
				at++
			}
		}
		if depth == 0 {
			return at, levels
		}
	}
}

// unquoted is the text of a valid JSON string.
func unquoted(quoted []byte) string {
	if !bytes.ContainsRune(quoted, '\\') {
		return string(quoted[1 : len(quoted)-1])
	}
	var text string
	_ = json.Unmarshal(quoted, &text)
	return text
}

// items are the texts of the values of a valid list; nil for another value.
func items(raw []byte) []json.RawMessage {
	if len(raw) == 0 || raw[0] != '[' {
		return nil
	}
	found := []json.RawMessage{}
	_, _ = walk(raw, 0, func(_ []byte, at int) (int, error) {
		end, _ := skipValue(raw, at)
		found = append(found, raw[at:end:end])
		return end, nil
	})
	return found
}

// A larger count comes from a broken producer; its fourth power would not be a usable delay.
const maxCount = 100_000

// asCount is a count, as a number or as digits.
func asCount(raw []byte) (int, bool) {
	text := string(raw)
	if len(raw) > 1 && raw[0] == '"' {
		text = unquoted(raw)
		if text == "" || strings.IndexFunc(text, func(r rune) bool { return r < '0' || r > '9' }) >= 0 {
			return 0, false
		}
	}
	number, err := strconv.ParseFloat(text, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) || number != math.Trunc(number) || number < 0 || math.IsInf(number, 0) {
		return 0, false
	}
	return int(min(number, maxCount)), true
}

// Later times have no date: readers of all programs fail with them.
const latest = 253_402_300_799.0

// asSeconds is a duration, as a number or as its text.
func asSeconds(raw []byte) (float64, bool) {
	text := string(raw)
	if len(raw) > 1 && raw[0] == '"' {
		text = unquoted(raw)
	}
	number, err := strconv.ParseFloat(text, 64)
	return number, err == nil && number >= 0 && number <= latest
}

// asTime is a time in epoch seconds: a number of seconds or, if it is that large, of milliseconds; or a text.
func asTime(raw []byte) (float64, bool) {
	if len(raw) == 0 || raw[0] != '"' {
		return epoch(string(raw))
	}
	text := strings.TrimSpace(unquoted(raw))
	if at, known := epoch(text); known {
		return at, true
	}
	for _, layout := range []string{"2006-01-02 15:04:05 UTC", time.RFC3339Nano, "2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05.999999999Z07:00", "2006-01-02"} {
		if at, err := time.Parse(layout, text); err == nil {
			return seconds(at), true
		}
	}
	return 0, false
}

func epoch(text string) (float64, bool) {
	number, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(number) || math.IsInf(number, 0) {
		return 0, false
	}
	if math.Abs(number) >= 1e11 {
		number /= 1000
	}
	return number, true
}

// timeText is the JSON text of a time.
func timeText(at float64) []byte { return appendTime(nil, at) }

// quoted is the JSON text of a text; bytes that are not UTF-8 become question marks.
func quoted(text string) []byte { return appendText(nil, strings.ToValidUTF8(text, "?")) }
