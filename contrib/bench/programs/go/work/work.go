// Package work holds what the jobs of both Go peers do, and the command line of their programs (peer.py).
package work

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

const (
	Queue   = "bench"
	cpuTime = time.Millisecond
	// The clock of clock_gettime(2) that counts the CPU time of the calling thread.
	threadCPU = 3
)

// Producer enqueues one job. at is when it is due; zero: now.
type Producer func(kind string, value any, at time.Time) error

var (
	counter *int64
	folder  = os.Getenv("BENCH_FOLDER")
	LineLog = os.Getenv("BENCH_LINE_LOG")
)

func Address() string { return "127.0.0.1:" + os.Getenv("BENCH_PORT") }

func Workers() int {
	workers, err := strconv.Atoi(os.Getenv("BENCH_WORKERS"))
	if err != nil {
		return 10
	}
	return workers
}

// Open maps the file in which this process counts its jobs.
func Open() {
	path := filepath.Join(folder, fmt.Sprintf("count-%d", os.Getpid()))
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	must(err)
	must(file.Truncate(8))
	memory, err := syscall.Mmap(int(file.Fd()), 0, 8, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	must(err)
	must(file.Close())
	counter = (*int64)(unsafe.Pointer(&memory[0]))
}

// Run is one job.
func Run(kind string, value func() int64) {
	switch kind {
	case "cpu":
		useCPU()
	case "sleep":
		time.Sleep(10 * time.Millisecond)
	case "second":
		time.Sleep(time.Second)
	case "stamp":
		stamp(time.Now().UnixNano() - value())
	}
	atomic.AddInt64(counter, 1)
}

func threadTime() time.Duration {
	var now syscall.Timespec
	_, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, threadCPU, uintptr(unsafe.Pointer(&now)), 0)
	if errno != 0 {
		panic(errno)
	}
	return time.Duration(now.Nano())
}

func useCPU() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	end := threadTime() + cpuTime
	for threadTime() < end {
	}
}

func stamp(nanoseconds int64) {
	path := filepath.Join(folder, fmt.Sprintf("stamps-%d", os.Getpid()))
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	must(err)
	must(binary.Write(file, binary.LittleEndian, nanoseconds))
	must(file.Close())
}

// Main is the program that enqueues; bulk is not known to go-workers nor go-workers2.
func Main(words []string, produce Producer) {
	started := time.Now()
	switch words[0] {
	case "push":
		push(produce, words[1], number(words[2]))
	case "later":
		first := started.Add(time.Duration(number(words[3])) * time.Second)
		later(produce, words[1], number(words[2]), first, milliseconds(words[4]))
	case "pace":
		pace(produce, number(words[1]), milliseconds(words[2]))
	default:
		panic("cannot " + strings.Join(words, " "))
	}
	fmt.Printf("{\"seconds\": %g}\n", time.Since(started).Seconds())
}

func push(produce Producer, kind string, count int) {
	var value any = 0
	if kind == "blob" {
		value = strings.Repeat("x", 1_000_000)
	}
	for range count {
		must(produce(kind, value, time.Time{}))
	}
}

func later(produce Producer, kind string, count int, first time.Time, interval time.Duration) {
	for i := range count {
		at := first.Add(time.Duration(i) * interval)
		must(produce(kind, at.UnixNano(), at))
	}
}

func pace(produce Producer, count int, interval time.Duration) {
	started := time.Now()
	for i := range count {
		must(produce("stamp", time.Now().UnixNano(), time.Time{}))
		time.Sleep(time.Until(started.Add(time.Duration(i+1) * interval)))
	}
}

func number(word string) int {
	value, err := strconv.Atoi(word)
	must(err)
	return value
}

func milliseconds(word string) time.Duration {
	return time.Duration(number(word)) * time.Millisecond
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
