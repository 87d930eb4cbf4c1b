package pyworkers

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// answering is the address of a server that answers each command as a function says, which gets the number of the
// connection, from 1, and the name of the command. It closes the connection for an empty answer.
func answering(t *testing.T, answer func(connection int, name string) string) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	serve := func(number int, connection net.Conn) {
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
			reply := answer(number, name)
			if _, err := io.WriteString(connection, reply); err != nil || reply == "" {
				return
			}
		}
	}
	go func() {
		for number := 1; ; number++ {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go serve(number, connection)
		}
	}()
	return listener.Addr().String()
}

// losing is the address of a server that closes the connection when it has read one of these commands, and the number
// of times that it has.
func losing(t *testing.T, commands ...string) (string, *atomic.Int32) {
	lost := new(atomic.Int32)
	address := answering(t, func(_ int, name string) string {
		switch {
		case slices.Contains(commands, name):
			lost.Add(1)
			return ""
		case name == "ZRANGEBYSCORE":
			return "*0\r\n"
		}
		return "-ERR unknown command\r\n"
	})
	return address, lost
}

func TestAPushLeavesAServerThatIsAReplicaNow(t *testing.T) {
	var opened, replicas atomic.Int32 // connections up to this number lead to the former primary
	address := answering(t, func(connection int, name string) string {
		opened.Store(max(opened.Load(), int32(connection)))
		isReplica := int32(connection) <= replicas.Load()
		switch {
		case name == "MULTI":
			return "+OK\r\n"
		case name == "EXEC" && isReplica:
			return "-EXECABORT Transaction discarded because of previous errors.\r\n"
		case name == "EXEC":
			return "*2\r\n:0\r\n:1\r\n"
		case name == "ZRANGEBYSCORE":
			return "*0\r\n"
		case name == "HELLO" || name == "CLIENT":
			return "-ERR unknown command\r\n"
		case isReplica:
			return "-READONLY You can't write against a read only replica.\r\n"
		case name == "EXPIRE":
			return ":0\r\n"
		}
		return "+QUEUED\r\n"
	})
	client, err := New(redis.NewClient(&redis.Options{Addr: address}), Config{})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := client.Enqueue(t.Context(), Job{Queue: "q", Class: "A"}); err != nil {
			t.Fatal(err)
		}
		replicas.Store(opened.Load())
	}
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

func TestARedisThatTakesNoMoreConnectionsIsUnavailable(t *testing.T) {
	address := answering(t, func(int, string) string { return "-ERR max number of clients reached\r\n" })
	client, err := New(redis.NewClient(&redis.Options{Addr: address, MaxRetries: -1}), Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	const want = "Redis takes no more connections: ERR max number of clients reached"
	if _, err := client.Enqueue(t.Context(), Job{Queue: "q", Class: "A"}); !isLost(err) || err.Error() != want {
		t.Error(err)
	}
}

func TestAContextEndsACallIfRedisHangs(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	t.Setenv("PYWORKERS_REDIS__URL", "redis://"+silent.Addr().String()+"?read_timeout=20s&max_retries=-1")
	client, err := FromEnv()
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	if _, err := client.Enqueue(ctx, Job{Queue: "q", Class: "A"}); err == nil || time.Since(began) > 10*time.Second {
		t.Errorf("%v after %v", err, time.Since(began))
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

func TestOptionsOfAURLAreThoseOfEachForm(t *testing.T) {
	t.Setenv("PYWORKERS_REDIS__USERNAME", "shop")
	t.Setenv("PYWORKERS_REDIS__PASSWORD", "secret")
	const query = "?max_retries=7&client_name=shop&min_idle_conns=2&pool_timeout=9s"
	var found []string
	for _, address := range []string{"redis://host/0", "redis+sentinel://host/name/0", "redis+cluster://host"} {
		rdb, waits, err := connection(address + query)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = rdb.Close() }()
		if waits != nil {
			defer func() { _ = waits.Close() }()
		}
		switch one := rdb.(type) {
		case *redis.Client:
			o := one.Options()
			found = append(found, fmt.Sprintln(o.MaxRetries, o.ClientName, o.MinIdleConns, o.PoolTimeout, o.Username, o.Password))
		case *redis.ClusterClient:
			o := one.Options()
			found = append(found, fmt.Sprintln(o.MaxRetries, o.ClientName, o.MinIdleConns, o.PoolTimeout, o.Username, o.Password))
		}
		if _, _, err := connection(address + "?unknown=1"); err == nil {
			t.Error(address, "takes an unknown option")
		}
	}
	for _, options := range found {
		if options != "7 shop 2 9s shop secret\n" || len(found) != 3 {
			t.Error(found)
		}
	}
}
