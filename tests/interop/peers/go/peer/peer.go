// Package peer is what both Go programs share: the commands that they take, the jobs that they run, and the
// ledger in which the tests read what was run.
package peer

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"time"
)

// Logger keeps the libraries' log away from standard output, which carries the answers.
var Logger = log.New(os.Stderr, "", log.LstdFlags)

// Command is one line of standard input: what to enqueue, and by which function of the library.
type Command struct {
	Call    string          `json:"call"`
	Queue   string          `json:"queue"`
	Class   string          `json:"class"`
	Args    interface{}     `json:"args"`
	In      float64         `json:"in"`
	At      float64         `json:"at"`
	Options json.RawMessage `json:"options"`
}

// Time is the moment that At stands for.
func (c Command) Time() time.Time {
	return time.Unix(0, int64(c.At*1e9))
}

// Serve answers each command with {"result": jid} or {"error": text}, until standard input ends.
func Serve(enqueue func(Command) (string, error)) {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var command Command
		err := json.Unmarshal(lines.Bytes(), &command)
		answer := map[string]string{}
		if err == nil {
			answer["result"], err = enqueue(command)
		}
		if err != nil {
			answer["error"] = err.Error()
		}
		text, _ := json.Marshal(answer)
		fmt.Println(string(text))
	}
}

// Run does one job, whose stored text is raw, and notes it first. Its class says what happens.
func Run(raw string) error {
	var job struct {
		Class      string        `json:"class"`
		Args       []interface{} `json:"args"`
		RetryCount *int          `json:"retry_count"`
	}
	if err := json.Unmarshal([]byte(raw), &job); err != nil {
		return err
	}
	note(raw)
	switch {
	case job.Class == "Fail", job.Class == "FailOnce" && job.RetryCount == nil:
		return errors.New("go failed")
	case job.Class == "Wait":
		for !exists(job.Args[0].(string)) {
			time.Sleep(10 * time.Millisecond)
		}
	}
	return nil
}

func note(raw string) {
	file, err := os.OpenFile(os.Getenv("PEER_LEDGER"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		Logger.Fatal(err)
	}
	defer file.Close()
	fmt.Fprintln(file, raw)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
