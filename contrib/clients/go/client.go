// Package pyworkers enqueues jobs for pyworkers, the worker server for Python, and waits for their results; and it runs
// jobs that Python, Ruby and Go enqueue.
//
// A [Job] has a queue, a class, arguments and [Options]. Without options it is pushed as Sidekiq pushes it; with
// options, one script does all of it in one round trip, or nothing: locks, limits, statuses, membership in batches.
//
//	client, err := pyworkers.FromEnv()
//	id, err := client.Enqueue(ctx, pyworkers.Job{Queue: "mail", Class: "send", Args: []any{7}})
//
// [Call] has the types of a job: Go calls a function in Python, and gets its value. [Serve] is the other way: it runs
// the jobs of a [HandleFunc].
package pyworkers

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Config is what a [Client] needs besides its connection.
type Config struct {
	// Namespace is the prefix of every key, with its colon: "app:". A cluster needs a hash tag: "{app}:".
	Namespace string
	// Keys seal the arguments of jobs with Encrypt, and open nothing else.
	Keys *Keyring
}

// Client enqueues jobs. It is safe for use by many goroutines.
type Client struct {
	rdb   redis.UniversalClient
	waits redis.UniversalClient // for commands that block
	ns    string
	keys  *Keyring
	spoke atomic.Bool // the servers speak the wire of this client
}

// wire is the version of the contract that this package speaks.
const wire = "1"

var namespaces = regexp.MustCompile(`^(\S*:)?$`)

// New makes a client of a connection of go-redis: to one server, to sentinels, or to a cluster. Pushes are sent once,
// whatever its MaxRetries: a push whose reply was lost may have been done. Commands that block have their own connections,
// with the same options.
func New(rdb redis.UniversalClient, config Config) (*Client, error) {
	if !namespaces.MatchString(config.Namespace) {
		return nil, fmt.Errorf("pyworkers: namespace must be empty or end with a colon, without white space, not %q",
			config.Namespace)
	}
	if _, isCluster := rdb.(*redis.ClusterClient); isCluster && !hasTag(config.Namespace) {
		return nil, errors.New("pyworkers: on a cluster the namespace needs a hash tag, as {app}:")
	}
	return &Client{rdb: rdb, waits: waiting(rdb), ns: config.Namespace, keys: config.Keys}, nil
}

// The most commands that block at once; further ones wait for their turn.
const mostWaits = 1000

// waiting is a connection like another one, for commands that block: they would keep the connections of its pool from the
// others. One of a foreign type is itself.
func waiting(rdb redis.UniversalClient) redis.UniversalClient {
	switch rdb := rdb.(type) {
	case *redis.Client:
		o := *rdb.Options()
		o.MaxIdleConns, o.MinIdleConns, o.PoolSize, o.MaxActiveConns, o.MaxRetries = o.PoolSize, 0, mostWaits, 0, -1
		o.PushNotificationProcessor, o.ClientSideCache, o.ClientSideCacheConfig = nil, nil, nil // they belong to one client
		return redis.NewClient(&o)
	case *redis.ClusterClient:
		o := *rdb.Options()
		o.MaxIdleConns, o.MinIdleConns, o.PoolSize, o.MaxActiveConns, o.MaxRetries = o.PoolSize, 0, mostWaits, 0, -1
		return redis.NewClusterClient(&o)
	}
	return rdb
}

// FromEnv makes a client as Python's Client() does: of PYWORKERS_REDIS__URL, else REDIS_URL, else
// redis://127.0.0.1:6379/0, with PYWORKERS_REDIS__NAMESPACE, and the keys in the file PYWORKERS_ENCRYPTION__KEYS. The URL
// may be one of sentinels, redis+sentinel://host1,host2,host3/mymaster/0, or of a cluster, redis+cluster://host1,host2,host3.
// PYWORKERS_REDIS__USERNAME and PYWORKERS_REDIS__PASSWORD are the login of a URL without one, PYWORKERS_REDIS__CA_FILE,
// PYWORKERS_REDIS__CERT_FILE and PYWORKERS_REDIS__KEY_FILE the files of TLS.
func FromEnv() (*Client, error) {
	address := cmp.Or(os.Getenv("PYWORKERS_REDIS__URL"), os.Getenv("REDIS_URL"), "redis://127.0.0.1:6379/0")
	rdb, waits, err := connection(address)
	if err != nil {
		// The error of the package url quotes the URL, with its password.
		if bad := (*url.Error)(nil); errors.As(err, &bad) {
			err = bad.Err
		}
		return nil, fmt.Errorf("pyworkers: the Redis URL cannot be used: %w", err)
	}
	config := Config{Namespace: os.Getenv("PYWORKERS_REDIS__NAMESPACE")}
	if path := os.Getenv("PYWORKERS_ENCRYPTION__KEYS"); path != "" {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("pyworkers: encryption keys cannot be read: %w", err)
		}
		if config.Keys, err = ParseKeys(string(text)); err != nil {
			return nil, fmt.Errorf("pyworkers: %s: %w", path, err)
		}
	}
	client, err := New(rdb, config)
	if err == nil && waits != nil {
		client.waits = waits
	}
	return client, err
}

// connection connects to one server, to sentinels or to a cluster; to sentinels a second time for commands that block, because
// a copy of the connection would stay with a primary that hangs.
func connection(address string) (rdb, waits redis.UniversalClient, err error) {
	scheme, rest, _ := strings.Cut(address, "://")
	scheme, kind, isGroup := strings.Cut(scheme, "+")
	if !isGroup {
		options, err := optionsOf(address)
		if err != nil {
			return nil, nil, err
		}
		return redis.NewClient(options), nil, nil
	}
	rest, query, _ := strings.Cut(rest, "?")
	hosts, path, _ := strings.Cut(rest, "/")
	at := strings.LastIndex(hosts, "@") + 1
	name, db, _ := strings.Cut(strings.Trim(path, "/"), "/")
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, nil, err
	}
	login := [...]string{values.Get("sentinel_username"), values.Get("sentinel_password")}
	values.Del("sentinel_username")
	values.Del("sentinel_password")
	// The options of the connections to Redis are the options in a URL of one server.
	one, err := optionsOf(scheme + "://" + hosts[:at] + "localhost/" + db + "?" + values.Encode())
	switch {
	case err != nil:
		return nil, nil, err
	case one.TLSConfig != nil:
		one.TLSConfig.ServerName = "" // the name of each host
	}
	options := &redis.UniversalOptions{
		DB: one.DB, Username: one.Username, Password: one.Password, TLSConfig: one.TLSConfig, Protocol: one.Protocol,
		ClientName: one.ClientName, DialTimeout: one.DialTimeout, ReadTimeout: one.ReadTimeout, WriteTimeout: one.WriteTimeout,
		MaxRetries: one.MaxRetries, MinRetryBackoff: one.MinRetryBackoff, MaxRetryBackoff: one.MaxRetryBackoff,
		PoolFIFO: one.PoolFIFO, PoolSize: one.PoolSize, PoolTimeout: one.PoolTimeout, MinIdleConns: one.MinIdleConns,
		MaxIdleConns: one.MaxIdleConns, MaxActiveConns: one.MaxActiveConns, ConnMaxIdleTime: one.ConnMaxIdleTime,
		ConnMaxLifetime: one.ConnMaxLifetime, ContextTimeoutEnabled: one.ContextTimeoutEnabled,
	}
	switch {
	case kind == "sentinel" && name != "":
		options.Addrs, options.MasterName = withPorts(hosts[at:], "26379"), name
		options.SentinelUsername, options.SentinelPassword = login[0], login[1]
		apart := options.Failover()
		apart.PoolSize, apart.MinIdleConns, apart.MaxActiveConns, apart.MaxRetries = mostWaits, 0, 0, -1
		return redis.NewFailoverClient(options.Failover()), redis.NewFailoverClient(apart), nil
	case kind == "cluster" && (name == "" || name == "0") && db == "" && one.DB == 0:
		options.Addrs = withPorts(hosts[at:], "6379")
		return redis.NewClusterClient(options.Cluster()), nil, nil
	}
	return nil, nil, errors.New("it is none of redis://host:port/db, redis+sentinel://host:port,host:port/NAME-OF-THE-MASTER/db, " +
		"redis+cluster://host:port,host:port")
}

// optionsOf are the options in a URL of one server, with the login and the files of TLS in the environment.
func optionsOf(address string) (*redis.Options, error) {
	options, err := redis.ParseURL(address)
	if err != nil {
		return nil, err
	}
	options.ContextTimeoutEnabled = true // otherwise, a server that hangs is given its time to read
	setting := func(name string) string { return os.Getenv("PYWORKERS_REDIS__" + name) }
	options.Username = cmp.Or(options.Username, setting("USERNAME"))
	options.Password = cmp.Or(options.Password, setting("PASSWORD"))
	if options.TLSConfig == nil {
		return options, nil
	}
	if path := setting("CA_FILE"); path != "" {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("PYWORKERS_REDIS__CA_FILE: %w", err)
		}
		options.TLSConfig.RootCAs = x509.NewCertPool()
		if !options.TLSConfig.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("PYWORKERS_REDIS__CA_FILE: %s has no certificate", path)
		}
	}
	if path := setting("CERT_FILE"); path != "" {
		own, err := tls.LoadX509KeyPair(path, cmp.Or(setting("KEY_FILE"), path))
		if err != nil {
			return nil, fmt.Errorf("PYWORKERS_REDIS__CERT_FILE: %w", err)
		}
		options.TLSConfig.Certificates = []tls.Certificate{own}
	}
	return options, nil
}

// withPorts are addresses between commas, each with a port.
func withPorts(hosts, port string) []string {
	found := strings.Split(hosts, ",")
	for i, host := range found {
		if strings.LastIndex(host, ":") <= strings.LastIndex(host, "]") {
			found[i] = host + ":" + port
		}
	}
	return found
}

// Close closes the connection, also one that was given to [New].
func (c *Client) Close() error {
	if c.waits != c.rdb {
		_ = c.waits.Close()
	}
	return c.rdb.Close()
}

// checkWire returns a WireError if there are servers, and all speak other versions. It asks once.
func (c *Client) checkWire(ctx context.Context) error {
	if c.spoke.Load() {
		return nil
	}
	spoken, err := c.rdb.ZRangeByScore(ctx, c.own("wire"), &redis.ZRangeBy{Min: "-inf", Max: "+inf"}).Result()
	if err != nil {
		return translate(err)
	}
	if len(spoken) > 0 && !slices.Contains(spoken, wire) {
		return &WireError{spoken}
	}
	c.spoke.Store(true)
	return nil
}

func (c *Client) key(parts ...string) string { return c.ns + strings.Join(parts, "") }

func (c *Client) own(parts ...string) string { return c.ns + "pyworkers:" + strings.Join(parts, "") }

func hasTag(namespace string) bool {
	_, rest, found := strings.Cut(namespace, "{")
	return found && strings.Index(rest, "}") > 0
}

// once is a command that go-redis never sends again.
type once struct{ *redis.Cmd }

func (once) NoRetry() bool { return true }

// send sends commands once, several as one transaction. If another connection may lead to a server that takes them,
// a refusal, after which nothing was written, is answered by a second try.
func (c *Client) send(ctx context.Context, commands ...[]any) ([]any, error) {
	replies, err := c.try(ctx, commands)
	if isRefusal(err) {
		c.leave(ctx)
		replies, err = c.try(ctx, commands)
	}
	return replies, err
}

// leave closes the idle connections for transactions that lead to a former primary, which is a replica now. go-redis
// closes a connection whose command was refused with READONLY, but not one whose transaction was; and one that is only
// read from finds no job that has not come to the replica yet.
func (c *Client) leave(ctx context.Context) {
	stats := c.rdb.PoolStats()
	idle := stats.IdleConns
	if stats.PipelineStats != nil {
		idle = stats.PipelineStats.IdleConns // they have their own pool
	}
	for range idle {
		_, err := c.rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			return pipe.Process(ctx, once{redis.NewCmd(ctx, "EXPIRE", c.own("awaited"), noteLife)}) // a write that changes no fact
		})
		if codeOf(err) != "READONLY" {
			return
		}
	}
}

func (c *Client) try(ctx context.Context, commands [][]any) ([]any, error) {
	sent := make([]*redis.Cmd, len(commands))
	for i, args := range commands {
		sent[i] = redis.NewCmd(ctx, args...)
	}
	var err error
	if len(sent) == 1 {
		err = c.rdb.Process(ctx, once{sent[0]})
	} else {
		_, err = c.rdb.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
			for _, cmd := range sent {
				if err := pipe.Process(ctx, once{cmd}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	replies := make([]any, len(sent))
	for i, cmd := range sent {
		replies[i] = cmd.Val()
		// In a transaction, the refusal of a command comes before the refusal of EXEC, which has no reason.
		if cmdErr := cmd.Err(); cmdErr != nil && cmdErr != redis.Nil && (err == nil || isReply(cmdErr) && redis.IsExecAbortError(err)) {
			err = cmdErr
		}
	}
	if err == redis.Nil {
		err = nil
	}
	err = translate(err)
	if cluster, isCluster := c.rdb.(*redis.ClusterClient); isCluster && isLost(err) {
		cluster.ReloadState(ctx) // go-redis asks for the new primary after commands that it repeats, and else once a minute
	}
	return replies, err
}

// listOf is a reply that is a list; nil for another one.
func listOf(reply any) []any {
	found, _ := reply.([]any)
	return found
}

// textOf is a reply that is a text; empty for another one.
func textOf(reply any) string {
	found, _ := reply.(string)
	return found
}

// secondsOf is a time of which a script replies the seconds; 0 for another text.
func secondsOf(text string) time.Duration {
	number, _ := strconv.ParseFloat(text, 64)
	return time.Duration(number * float64(time.Second))
}
