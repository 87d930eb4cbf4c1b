package pyworkers

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// losing is the address of a server that closes the connection when it has read one of these commands, and the number
// of times that it has.
func losing(t *testing.T, commands ...string) (string, *atomic.Int32) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	lost := new(atomic.Int32)
	serve := func(connection net.Conn) {
		defer connection.Close()
		for reader := bufio.NewReader(connection); ; {
			var parts, size int
			if _, err := fmt.Fscanf(reader, "*%d\r\n", &parts); err != nil {
				return
			}
			var name string
			for i := range parts {
				if _, err := fmt.Fscanf(reader, "$%d\r\n", &size); err != nil {
					return
				}
				text := make([]byte, size+2)
				if _, err := io.ReadFull(reader, text); err != nil {
					return
				}
				if i == 0 {
					name = strings.ToUpper(string(text[:size]))
				}
			}
			for _, command := range commands {
				if name == command {
					lost.Add(1)
					return
				}
			}
			if name == "ZRANGEBYSCORE" {
				_, _ = io.WriteString(connection, "*0\r\n")
			} else {
				_, _ = io.WriteString(connection, "-ERR unknown command\r\n")
			}
		}
	}
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go serve(connection)
		}
	}()
	return listener.Addr().String(), lost
}

func TestAPushWhoseReplyIsLostIsNotRepeated(t *testing.T) {
	for name, options := range map[string]Options{"MULTI": {}, "EVALSHA": {Track: time.Hour}, "ZADD": {In: time.Hour}} {
		address, lost := losing(t, name)
		client, err := New(redis.NewClient(&redis.Options{Addr: address, MaxRetries: 3}), Config{})
		if err != nil {
			t.Fatal(err)
		}
		var away *UnavailableError
		if _, err := client.Enqueue(t.Context(), Job{Queue: "q", Class: "A", Options: options}); !errors.As(err, &away) {
			t.Errorf("%s: %v", name, err)
		}
		if times := lost.Load(); times != 1 {
			t.Errorf("%s was sent %d times", name, times)
		}
	}
}

func TestAnErrorQuotesNoPassword(t *testing.T) {
	for _, address := range []string{"redis://:secret@host:port/0", "redis://:secret@host/db", "redis+sentinel://:secret@host", "redis+cluster://:secret@host/1", "redis+x://:secret@host/0", "redis+cluster://:secret@host?secret=%zz"} {
		t.Setenv("PYWORKERS_REDIS__URL", address)
		if _, err := FromEnv(); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", address, err)
		} else {
			t.Log(err)
		}
	}
}
