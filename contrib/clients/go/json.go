package pyworkers

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// resultMark is the placeholder in the arguments of a step for what the step before returned; no value of an application has it.
var resultMark = []byte(`{"pyworkers":"RESULT ` + newID() + `"}`)

// maxDepth is the number of lists and objects inside each other below an argument.
const maxDepth = 500

// maxDigits is how many digits of an integer a server reads.
const maxDigits = 4300

// encode is the JSON text of a value as it is in an envelope: compact, and raw UTF-8 instead of escapes, because
// Sidekiq compares bytes that Ruby writes. path and at name the value in the [ArgumentError] for one that JSON cannot
// hold.
func encode(value any, path string, at ...any) ([]byte, error) {
	w := writer{path: path, at: at}
	return w.encode(nil, value)
}

// appendArgs adds the JSON text of the arguments of a job with a role. Of each [Result] in them, the place is added to fills.
func appendArgs(out []byte, args []any, role role, fills *[][]any) ([]byte, error) {
	w := writer{path: "args", role: role, fills: fills}
	out = append(out, '[')
	for i, arg := range args {
		if i > 0 {
			out = append(out, ',')
		}
		var err error
		w.at = append(w.at[:0], i)
		if out, err = w.encode(out, arg); err != nil {
			return nil, err
		}
	}
	return append(out, ']'), nil
}

// encode adds the JSON text of a value.
func (w *writer) encode(out []byte, value any) ([]byte, error) {
	switch value := value.(type) {
	case nil:
		return append(out, "null"...), nil
	case bool:
		return strconv.AppendBool(out, value), nil
	case int:
		return strconv.AppendInt(out, int64(value), 10), nil
	case string:
		if !utf8.ValidString(value) {
			return nil, w.refuse("is not valid UTF-8")
		}
		return appendText(out, value), nil
	case []any:
		return w.encodeList(out, value)
	case map[string]any:
		return w.encodeMap(out, value)
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return nil, w.explain(err)
	}
	if isCompact(raw) {
		return append(out, raw...), nil
	}
	w.src, w.pos = raw, 0
	return w.value(out)
}

// Lists and maps of any value are the arguments of most jobs that have more than scalars: encoding/json takes several
// times as long, and has no path for an error.
func (w *writer) encodeList(out []byte, list []any) ([]byte, error) {
	if list == nil {
		return append(out, "null"...), nil
	}
	if err := w.checkDepth(); err != nil {
		return nil, err
	}
	out = append(out, '[')
	for i, item := range list {
		if i > 0 {
			out = append(out, ',')
		}
		w.at = append(w.at, i)
		var err error
		if out, err = w.encode(out, item); err != nil {
			return nil, err
		}
		w.at = w.at[:len(w.at)-1]
	}
	return append(out, ']'), nil
}

func (w *writer) encodeMap(out []byte, members map[string]any) ([]byte, error) {
	if members == nil {
		return append(out, "null"...), nil
	}
	if err := w.checkDepth(); err != nil {
		return nil, err
	}
	out = append(out, '{')
	for i, name := range slices.Sorted(maps.Keys(members)) {
		if i > 0 {
			out = append(out, ',')
		}
		w.at = append(w.at, name)
		if !utf8.ValidString(name) {
			return nil, w.refuse("has a name that is not valid UTF-8")
		}
		var err error
		if out, err = w.encode(append(appendText(out, name), ':'), members[name]); err != nil {
			return nil, err
		}
		w.at = w.at[:len(w.at)-1]
	}
	return append(out, '}'), nil
}

func (w *writer) checkDepth() error {
	if len(w.at) <= maxDepth {
		return nil
	}
	return &ArgumentError{Field: pathOf(w.path, w.at[:2]) + "…", Message: fmt.Sprintf("is nested deeper than %d levels", maxDepth)}
}

// isCompact is true for JSON of encoding/json that has no escape, no [Result], and no depth or number to check.
func isCompact(raw []byte) bool {
	return bytes.IndexByte(raw, '\\') < 0 && !bytes.Contains(raw, resultMark) && !hasLarge(raw) &&
		bytes.Count(raw, []byte("["))+bytes.Count(raw, []byte("{")) < maxDepth
}

// hasLarge is true if there may be a number beyond the range of a double, or an integer of too many digits.
func hasLarge(raw []byte) bool {
	digits := 0
	for _, char := range raw {
		isDigit := '0' <= char && char <= '9'
		switch {
		case isDigit && digits < 300:
			digits++
		case isDigit, digits > 0 && (char == 'e' || char == 'E'):
			return true
		default:
			digits = 0
		}
	}
	return false
}

// canonical is the form of RFC 8785, in which programs in all languages compute the same keys, with one addition: a
// number without point and exponent is an integer, and has its digits.
func canonical(raw []byte, path string) ([]byte, error) {
	if !json.Valid(raw) {
		return nil, &ArgumentError{Field: path, Message: "is not JSON"}
	}
	w := writer{src: raw, path: path, canonical: true}
	return w.value(make([]byte, 0, len(raw)))
}

// writer writes one JSON text, which is valid, in another form.
type writer struct {
	src       []byte
	pos       int
	path      string
	at        []any // the keys and indices below path
	canonical bool
	role      role
	fills     *[][]any
}

// noResult is why a job with a role cannot take a [Result].
var noResult = map[role]string{
	alone:     "is Result, which only a step of a chain can take: use EnqueueChain",
	callback:  "is Result, but a callback has no result to take: use EnqueueChain",
	firstStep: "is Result, but the first step of a chain has no step before it whose result it could take",
}

func (w *writer) refuse(message string) error {
	return &ArgumentError{Field: pathOf(w.path, w.at), Message: message}
}

// pathOf is the path of a value: args[0]["name"].
func pathOf(path string, at []any) string {
	for _, key := range at {
		path += fmt.Sprintf("[%#v]", key)
	}
	return path
}

// explain is the ArgumentError for an error of encoding/json.
func (w *writer) explain(err error) error {
	message := "cannot be written as JSON: " + err.Error()
	if value, found := errors.AsType[*json.UnsupportedValueError](err); found && value.Value.CanFloat() {
		message = "is " + value.Str + ", which is not a JSON number"
	} else if kind, found := errors.AsType[*json.UnsupportedTypeError](err); found {
		message = "is of type " + kind.Type.String() + ", which JSON does not carry"
	}
	refused := w.refuse(message).(*ArgumentError)
	refused.Err = err
	return refused
}

func (w *writer) value(out []byte) ([]byte, error) {
	w.pos = skipBlanks(w.src, w.pos)
	switch first := w.src[w.pos]; first {
	case '"':
		text, err := w.text(w.next())
		if err != nil {
			return nil, err
		}
		return appendText(out, text), nil
	case '[', '{':
		if err := w.checkDepth(); err != nil {
			return nil, err
		}
		if first == '[' {
			return w.list(out)
		}
		if bytes.HasPrefix(w.src[w.pos:], resultMark) {
			if w.fills == nil {
				return nil, w.refuse(noResult[w.role])
			}
			w.pos += len(resultMark)
			*w.fills = append(*w.fills, slices.Clone(w.at))
			return append(out, "null"...), nil
		}
		return w.object(out)
	}
	word := string(w.next())
	if word[0] == 't' || word[0] == 'f' || word[0] == 'n' {
		return append(out, word...), nil
	}
	return w.number(out, word)
}

// next is the text of the value that begins here.
func (w *writer) next() []byte {
	start := w.pos
	w.pos, _ = skipValue(w.src, start)
	return w.src[start:w.pos]
}

func (w *writer) list(out []byte) ([]byte, error) {
	out = append(out, '[')
	index := 0
	end, err := walk(w.src, w.pos, func(_ []byte, at int) (int, error) {
		if index > 0 {
			out = append(out, ',')
		}
		w.pos, w.at = at, append(w.at, index)
		index++
		var err error
		out, err = w.value(out)
		w.at = w.at[:len(w.at)-1]
		return w.pos, err
	})
	if err != nil {
		return nil, err
	}
	w.pos = end
	return append(out, ']'), nil
}

func (w *writer) object(out []byte) ([]byte, error) {
	var found members
	end, err := walk(w.src, w.pos, func(quoted []byte, at int) (int, error) {
		name, err := w.text(quoted)
		if err != nil {
			return 0, err
		}
		w.pos, w.at = at, append(w.at, name)
		value, err := w.value(nil)
		w.at = w.at[:len(w.at)-1]
		found = append(found, field{name, value})
		return w.pos, err
	})
	if err != nil {
		return nil, err
	}
	w.pos = end
	if w.canonical {
		slices.SortStableFunc(found, func(a, b field) int {
			return slices.Compare(utf16.Encode([]rune(a.name)), utf16.Encode([]rune(b.name)))
		})
		// Of members with the same name, the last one counts.
		slices.Reverse(found)
		found = slices.CompactFunc(found, func(a, b field) bool { return a.name == b.name })
		slices.Reverse(found)
	}
	return found.write(out), nil
}

// text is the text of a string. encoding/json writes the escape of U+FFFD for bytes that are not UTF-8, and the character
// itself for itself.
func (w *writer) text(quoted []byte) (string, error) {
	if bytes.IndexByte(quoted, '\\') < 0 {
		if !utf8.Valid(quoted) {
			return "", w.refuse("is not valid UTF-8")
		}
		return string(quoted[1 : len(quoted)-1]), nil
	}
	lone, replaced := escapes(quoted)
	if lone >= 0 {
		return "", w.refuse(fmt.Sprintf("holds a lone surrogate at character %d", lone))
	}
	if replaced && !w.canonical {
		return "", w.refuse("is not valid UTF-8, or has the escape \\ufffd: write the character itself")
	}
	var text string
	err := json.Unmarshal(quoted, &text)
	return text, err
}

// escapes tells which character of a text is the escape of half a surrogate pair, -1 if none is, and whether it has the
// escape of U+FFFD.
func escapes(quoted []byte) (lone int, replaced bool) {
	char := 0
	for i := 1; i < len(quoted)-1; i++ {
		if quoted[i] != '\\' {
			if utf8.RuneStart(quoted[i]) {
				char++
			}
			continue
		}
		unit := unitAt(quoted, i)
		i++
		if quoted[i] == 'u' {
			i += 4
		}
		if utf16.IsSurrogate(unit) {
			if i+6 >= len(quoted) || utf16.DecodeRune(unit, unitAt(quoted, i+1)) == utf8.RuneError {
				return char, replaced
			}
			i += 6
		}
		replaced = replaced || unit == utf8.RuneError
		char++
	}
	return -1, replaced
}

// unitAt is the code unit of the escape \uXXXX that begins at i; 0 if there is another text.
func unitAt(quoted []byte, i int) rune {
	if quoted[i] != '\\' || quoted[i+1] != 'u' {
		return 0
	}
	unit, _ := strconv.ParseUint(string(quoted[i+2:i+6]), 16, 16)
	return rune(unit)
}

func (w *writer) number(out []byte, word string) ([]byte, error) {
	if !strings.ContainsAny(word, ".eE") {
		if len(strings.TrimPrefix(word, "-")) > maxDigits {
			return nil, w.refuse("is an integer of more than 4,300 digits: pass it as a text")
		}
		if w.canonical && word == "-0" {
			word = "0"
		}
		return append(out, word...), nil
	}
	number, _ := strconv.ParseFloat(word, 64)
	if math.IsInf(number, 0) {
		return nil, w.refuse(fmt.Sprintf("is %v, which is not a JSON number", number))
	}
	if !w.canonical {
		return append(out, word...), nil
	}
	if number == 0 {
		return append(out, '0'), nil
	}
	if size := math.Abs(number); size >= 1e-6 && size < 1e21 {
		return strconv.AppendFloat(out, number, 'f', -1, 64), nil
	}
	// ECMAScript writes no leading zero in an exponent.
	text := strconv.FormatFloat(number, 'e', -1, 64)
	mantissa, exponent, _ := strings.Cut(text, "e")
	return append(out, mantissa+"e"+exponent[:1]+strings.TrimLeft(exponent[1:], "0")...), nil
}

const hexDigits = "0123456789abcdef"

// appendText adds the text with the escapes that JSON demands, and no others.
func appendText(out []byte, text string) []byte {
	out = append(out, '"')
	start := 0
	for i := 0; i < len(text); i++ {
		char := text[i]
		if char >= ' ' && char != '"' && char != '\\' {
			continue
		}
		out = append(out, text[start:i]...)
		start = i + 1
		switch char {
		case '"', '\\':
			out = append(out, '\\', char)
		case '\b':
			out = append(out, `\b`...)
		case '\f':
			out = append(out, `\f`...)
		case '\n':
			out = append(out, `\n`...)
		case '\r':
			out = append(out, `\r`...)
		case '\t':
			out = append(out, `\t`...)
		default:
			out = append(out, `\u00`...)
			out = append(out, hexDigits[char>>4], hexDigits[char&15])
		}
	}
	return append(append(out, text[start:]...), '"')
}
