package pyworkers

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
)

const (
	// suspectMark is behind the last byte of a job that a dead server had; recover.lua writes it, and an entry for the job.
	suspectMark = "\t"
	// From so many dead servers on, a job is a suspect: it runs while no other one does. It is dead when so many servers
	// died while it was the suspect that they ran.
	suspectFrom, maxDeaths = 2, 3
	suspectsFor            = 86400
)

// suspectField is the field of the entry of a marked job.
func suspectField(raw string) string {
	sum := sha1.Sum([]byte(strings.TrimRight(raw, suspectMark)))
	return hex.EncodeToString(sum[:])
}

// forgetSuspect deletes the entry of a marked job.
func forgetSuspect(raw string) effect {
	return effect{"DeleteField", []string{"pyworkers:suspects"}, []any{suspectField(raw)}}
}

// admit lets a marked job start: at once, or in its turn if it is a suspect. free ends the turn. An outcome is one
// without a run.
func (s *server) admit(d *delivery) (instead *outcome, free func()) {
	servers, deaths := s.entry(d)
	switch {
	case servers < suspectFrom:
		return nil, func() {}
	case deaths >= maxDeaths:
		f := failure{class: "WorkerLost", message: fmt.Sprintf("its server died while it ran; dead after %d such servers", deaths), fate: isDead}
		return s.withEnd(d, failed(d.job, f, new(HandlerOptions), s.now()), nil, ""), nil
	}
	s.log.Warn("job.held", "queue", d.queue, "jid", d.job.id)
	select {
	case s.turn <- struct{}{}:
	case <-s.quit:
		return &outcome{fate: isGivenBack}, nil
	case <-d.ctx.Done():
		return &outcome{fate: isGivenBack}, nil
	}
	// It is noted first: the job may end this process at once.
	key := s.client.own("suspects")
	noted := func() error {
		_, err := s.client.send(d.ctx, []any{"HSET", key, d.mine.identity, suspectField(d.raw)}, []any{"EXPIRE", key, suspectsFor})
		return err
	}
	if !s.untilDone(d, noted) {
		<-s.turn
		return &outcome{fate: isGivenBack}, nil
	}
	return nil, func() {
		s.mu.Lock()
		s.counts.stats["suspects"]++
		s.mu.Unlock()
		if _, err := s.client.send(s.base, []any{"HDEL", key, d.mine.identity}); err != nil {
			s.log.Error("suspect.noted_still", "error", err)
		}
		<-s.turn
	}
}

// entry is how many servers died that had the job, and how many of these deaths it is held responsible for.
func (s *server) entry(d *delivery) (servers, deaths int) {
	s.untilDone(d, func() error {
		replies, err := s.client.send(d.ctx, []any{"HGET", s.client.own("suspects"), suspectField(d.raw)})
		if err == nil {
			text, _ := replies[0].(string)
			_, _ = fmt.Sscanf(text, "%d %d", &servers, &deaths) // an invalid entry counts as empty
		}
		return err
	})
	return servers, deaths
}

// untilDone tries again while Redis is unreachable; false if the job is to end before.
func (s *server) untilDone(d *delivery, try func() error) bool {
	for {
		err := try()
		if err == nil || !isLost(err) { // of another type: there are no entries
			return true
		}
		select {
		case <-s.quit:
			return false
		case <-d.ctx.Done():
			return false
		case <-time.After(longPause):
		}
	}
}
