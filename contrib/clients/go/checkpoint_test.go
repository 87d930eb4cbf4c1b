package pyworkers_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	pyworkers "github.com/pyworkers/pyworkers/contrib/clients/go"
)

func TestAJobContinuesFromItsCheckpoint(t *testing.T) {
	rdb, client := connect(t)
	ctx, name := within(t, 30*time.Second), queue(t)
	var mu sync.Mutex
	var begins []int
	serve(t, client, pyworkers.ServeOptions{}, pyworkers.HandleFunc(name, "export", func(ctx context.Context, _ struct{}) (int, error) {
		at, err := pyworkers.OpenCheckpoint(ctx, 0)
		if err != nil {
			return 0, err
		}
		mu.Lock()
		begins = append(begins, at.Value)
		mu.Unlock()
		for page := at.Value; page < 6; page++ {
			if page == 3 && pyworkers.CurrentMessage(ctx).Attempt == 0 {
				return 0, pyworkers.RetryIn(time.Hour, errors.New("no page"))
			}
			if err := at.Save(page + 1); err != nil {
				return 0, err
			}
		}
		again, err := pyworkers.OpenCheckpoint(ctx, 0)
		if err != nil {
			return 0, err
		}
		return again.Value, nil
	}))
	id, err := client.Enqueue(ctx, pyworkers.Job{Queue: name, Class: "export", Options: pyworkers.Options{Track: time.Hour}})
	if err != nil {
		t.Fatal(err)
	}
	var retried string
	eventually(t, "it is retried", func() bool {
		for _, job := range rdb.ZRange(ctx, "retry", 0, -1).Val() {
			if strings.Contains(job, id) {
				retried = job
			}
		}
		return retried != ""
	})
	if !strings.HasSuffix(retried, `,"checkpoint":true}`) {
		t.Errorf("the job is %s", retried)
	}
	saved := rdb.HGetAll(ctx, "it-"+id).Val()
	if seconds, err := strconv.ParseFloat(saved["rt"], 64); saved["c"] != "3" || saved["ex"] != "1" || err != nil || seconds < 0 {
		t.Errorf("Redis has %v", saved)
	}
	if life := rdb.TTL(ctx, "it-"+id).Val(); life < 29*24*time.Hour {
		t.Errorf("it is kept for %v", life)
	}
	rdb.ZRem(ctx, "retry", retried)
	rdb.LPush(ctx, "queue:"+name, retried)
	var last int
	if err := client.Result(ctx, id, &last); err != nil || last != 6 {
		t.Errorf("the last value is %d: %v", last, err)
	}
	if rdb.Exists(ctx, "it-"+id).Val() != 0 {
		t.Error("the checkpoint is there after the end")
	}
	if !slices.Equal(begins, []int{0, 3}) {
		t.Errorf("the runs began at %v", begins)
	}
}

func TestAStopGivesALongJobBackAtOnce(t *testing.T) {
	rdb, client := connect(t)
	ctx, name := within(t, 30*time.Second), queue(t)
	type place struct{ Page int }
	begins, saved := make(chan place, 2), make(chan place, 1)
	handler := pyworkers.HandleFunc(name, "export", func(ctx context.Context, _ struct{}) (any, error) {
		at, err := pyworkers.OpenCheckpoint(ctx, place{1})
		if err != nil {
			return nil, err
		}
		begins <- at.Value
		for {
			time.Sleep(time.Millisecond)
			if err := at.Save(place{at.Value.Page + 1}); err != nil {
				saved <- at.Value
				return nil, err
			}
		}
	})
	options := pyworkers.ServeOptions{Grace: time.Minute}
	stop := serve(t, client, options, handler)
	id, err := client.Enqueue(ctx, pyworkers.Job{Queue: name, Class: "export"})
	if err != nil {
		t.Fatal(err)
	}
	if first := <-begins; first.Page != 1 {
		t.Errorf("it began at %v", first)
	}
	eventually(t, "a value is written", func() bool { return rdb.HExists(ctx, "it-"+id, "c").Val() })
	began := time.Now()
	if err := stop(); err != nil || time.Since(began) > 20*time.Second {
		t.Errorf("it stopped after %v: %v", time.Since(began), err)
	}
	if waiting := rdb.LRange(ctx, "queue:"+name, 0, -1).Val(); len(waiting) != 1 || !strings.Contains(waiting[0], id) {
		t.Errorf("the queue has %q", waiting)
	}
	stop = serve(t, client, options, handler)
	if first, last := <-begins, <-saved; first != last {
		t.Errorf("it continues at %v, not %v", first, last)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if runs := rdb.HGet(ctx, "it-"+id, "ex").Val(); runs != "2" {
		t.Errorf("Redis counts %s runs", runs)
	}
}

func TestValuesOfCheckpoints(t *testing.T) {
	rdb, client := connect(t)
	ctx, name := within(t, 30*time.Second), queue(t)
	outside, err := pyworkers.OpenCheckpoint(ctx, 1.5)
	if err != nil || outside.Save(2.5) != nil || outside.Value != 2.5 {
		t.Errorf("outside of a job: %v, %v", outside, err)
	}
	var wrong *pyworkers.ArgumentError
	if err := outside.Save(math.NaN()); !errors.As(err, &wrong) || outside.Value != 2.5 {
		t.Errorf("NaN: %v", err)
	}
	text, _ := pyworkers.OpenCheckpoint(ctx, "")
	if err := text.Save(strings.Repeat("x", 512<<10)); !errors.As(err, &wrong) {
		t.Errorf("too large: %v", err)
	}
	serve(t, client, pyworkers.ServeOptions{}, pyworkers.HandleFunc(name, "export", func(ctx context.Context, _ struct{}) (string, error) {
		if _, err := pyworkers.OpenCheckpoint(ctx, 0); err != nil {
			return err.Error(), nil
		}
		return "", nil
	}))
	for stored, want := range map[string]string{`"page 7"`: "cannot be read as int", "no JSON": ""} {
		options := pyworkers.Options{ID: name + stored[1:3], Track: time.Hour}
		rdb.HSet(ctx, "it-"+options.ID, "c", stored)
		id, err := client.Enqueue(ctx, pyworkers.Job{Queue: name, Class: "export", Options: options})
		var found string
		if err == nil {
			err = client.Result(ctx, id, &found)
		}
		if err != nil || !strings.Contains(found, want) || want == "" && found != "" {
			t.Errorf("%s: %q, %v", stored, found, err)
		}
	}
}
