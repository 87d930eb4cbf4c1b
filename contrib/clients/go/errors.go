package pyworkers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// ArgumentError says that a job cannot be enqueued with these arguments or options. Nothing was sent.
type ArgumentError struct {
	// Field is the option, or the path of the value in the arguments: args[0]["name"].
	Field string
	// Message says what is wrong with it.
	Message string
	// Err is the reason of encoding/json, if there is one.
	Err error
}

func (e *ArgumentError) Error() string { return e.Field + " " + e.Message }

func (e *ArgumentError) Unwrap() error { return e.Err }

// DuplicateError says that a job with the same class, queue and arguments is there ([Raise]). Nothing was enqueued.
type DuplicateError struct {
	// ID is the id of the job that is there.
	ID string
}

func (e *DuplicateError) Error() string {
	return "the same job is enqueued already, with the id " + e.ID
}

// QueueFullError says that the queue holds Limit jobs (MaxWaiting) or more. Nothing was enqueued.
type QueueFullError struct {
	Queue string
	Limit int
}

func (e *QueueFullError) Error() string {
	return fmt.Sprintf("the queue %q is full: max_waiting is %d", e.Queue, e.Limit)
}

// BatchError says that a batch takes no members, or is unknown. Nothing was enqueued.
type BatchError struct {
	ID string
	// Reason is unknown, ended, cancelled or exists.
	Reason string
}

func (e *BatchError) Error() string {
	switch e.Reason {
	case "ended":
		return fmt.Sprintf("the batch %s has ended: all its members are done", e.ID)
	case "cancelled":
		return fmt.Sprintf("the batch %s is cancelled: it takes no more members", e.ID)
	case "exists":
		return fmt.Sprintf("the batch %s exists already", e.ID)
	}
	return fmt.Sprintf("the batch %s is unknown: it has expired, or was deleted", e.ID)
}

// WireError says that the servers speak other versions of the wire than this client. Nothing was enqueued.
type WireError struct {
	// Spoken are the versions of the servers.
	Spoken []string
}

func (e *WireError) Error() string {
	return fmt.Sprintf("the servers speak version %s of the wire, and this client version %s: use a client that speaks theirs",
		strings.Join(e.Spoken, " and "), wire)
}

// UnavailableError says that Redis is unreachable or takes no writes now. If the connection was lost after a push was
// sent, the jobs may have been pushed or not.
type UnavailableError struct{ Err error }

func (e *UnavailableError) Error() string {
	return cmp.Or(away[codeOf(e.Err)], "Redis cannot be reached") + ": " + e.Err.Error()
}

func (e *UnavailableError) Unwrap() error { return e.Err }

// KeyError says that arguments cannot be sealed, because there is no key, or a key is invalid.
type KeyError struct{ Message string }

func (e *KeyError) Error() string { return e.Message }

// JobFailedError says that the job or batch whose result was asked for has ended without one.
type JobFailedError struct {
	// ID is the id of the job, or of the first member that ended and is not done.
	ID string
	// State is failed, dead, cancelled or expired; of a member also dropped, deleted or missing.
	State State
	// Class and Message are of the exception; empty if there was none.
	Class, Message string
	// Batch is the id of the batch whose result was asked for; empty for a job.
	Batch string

	kind string // of the batch, if it is known
}

func (e *JobFailedError) Error() string {
	if e.Batch != "" {
		return fmt.Sprintf("the %s %s is dead: a member is %s: %s", cmp.Or(e.kind, "batch"), e.Batch, e.State, e.ID)
	}
	text := fmt.Sprintf("the %s %s is %s", cmp.Or(e.kind, "job"), e.ID, e.State)
	for _, part := range []string{e.Class, e.Message} {
		if part != "" {
			text += ": " + part
		}
	}
	return text
}

// UntrackedError says that a job has no result to wait for: it has no Track, has expired, or there was none.
type UntrackedError struct {
	ID     string
	Reason string
}

func (e *UntrackedError) Error() string {
	return fmt.Sprintf("no result of the job %s: %s", e.ID, e.Reason)
}

// Codes of replies after which another server, or this one soon, takes the command, and what they mean.
var away = map[string]string{
	"LOADING": "Redis is not ready", "READONLY": "Redis takes no writes now", "MASTERDOWN": "Redis takes no writes now",
	"CLUSTERDOWN": "Redis takes no writes now", "UNBLOCKED": "Redis takes no writes now",
	"MAXCLIENTS": "Redis takes no more connections", "TRYAGAIN": "the cluster is moving the keys", "NOAUTH": "Redis refused the login", "WRONGPASS": "Redis refused the login",
}

// isReply is true for an answer of Redis; other errors are of the connection.
func isReply(err error) bool {
	_, reply := errors.AsType[redis.Error](err)
	return reply
}

// Replies without their own code.
var sentences = map[string]string{"max number of clients": "MAXCLIENTS", "AUTH <password> called without": "WRONGPASS"}

// codeOf is the first word of an error: the code, if it is a reply.
func codeOf(err error) string {
	if err == nil {
		return ""
	}
	for sentence, code := range sentences {
		if strings.Contains(err.Error(), sentence) {
			return code
		}
	}
	code, _, _ := strings.Cut(err.Error(), " ")
	return code
}

func isRefusal(err error) bool {
	if lost, isLost := errors.AsType[*UnavailableError](err); isLost {
		err = lost.Err
	}
	return isReply(err) && slices.Contains([]string{"READONLY", "NOREPLICAS", "UNBLOCKED"}, codeOf(err))
}

// isLost is true if Redis is unreachable, or takes no writes now.
func isLost(err error) bool {
	_, lost := errors.AsType[*UnavailableError](err)
	return lost
}

// translate makes an UnavailableError of the errors of a connection. Those of Redis' own, such as OOM and WRONGTYPE,
// and errors of the context stay as they are.
func translate(err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if isReply(err) && away[codeOf(err)] == "" {
		return err
	}
	return &UnavailableError{err}
}
