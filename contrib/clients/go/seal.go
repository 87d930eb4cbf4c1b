package pyworkers

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Keyring has the keys of encrypted jobs: the first one seals, each of them opens.
type Keyring struct{ keys []sealing }

type sealing struct {
	name   [8]byte // tells nothing about the key
	aead   cipher.AEAD
	digest [32]byte // the key of digests
}

const (
	keyBytes = 32
	// The version, and the name of the key.
	headBytes  = 9
	nonceBytes = 12
	makeOne    = "make a key with: openssl rand -base64 32"
)

// NewKeyring makes a keyring of keys of 32 bytes, the newest first. It returns a [KeyError] for others.
func NewKeyring(keys ...[]byte) (*Keyring, error) {
	ring := &Keyring{}
	for _, key := range keys {
		if len(key) != keyBytes {
			return nil, &KeyError{fmt.Sprintf("a key of %d bytes, not %d: %s", len(key), keyBytes, makeOne)}
		}
		block, err := aes.NewCipher(key)
		if err != nil {
			return nil, err
		}
		aead, err := cipher.NewGCM(block)
		if err != nil {
			return nil, err
		}
		name := sha256.Sum256(append([]byte("pyworkers key name:"), key...))
		digest := sha256.Sum256(append([]byte("pyworkers unique:"), key...))
		ring.keys = append(ring.keys, sealing{[8]byte(name[:8]), aead, digest})
	}
	if len(ring.keys) == 0 {
		return nil, &KeyError{"no key in it: " + makeOne}
	}
	return ring, nil
}

// ParseKeys makes a keyring of a file as [encryption] keys has it: a base64 key on each line, the newest first.
func ParseKeys(text string) (*Keyring, error) {
	var keys [][]byte
	for number, line := range strings.Split(text, "\n") {
		word := strings.TrimSpace(line)
		if word == "" || strings.HasPrefix(word, "#") {
			continue
		}
		key, err := base64.StdEncoding.DecodeString(strings.NewReplacer("-", "+", "_", "/").Replace(word))
		if err != nil {
			return nil, &KeyError{fmt.Sprintf("line %d is not base64: %s", number+1, makeOne)}
		}
		keys = append(keys, key)
	}
	return NewKeyring(keys...)
}

// seal makes of the JSON text of arguments a list with one text, which opens for this job alone.
func (m making) seal(args []byte, id, class string) ([]byte, error) {
	if m.keys == nil {
		return nil, &KeyError{"Encrypt, but there are no keys: Config.Keys has them"}
	}
	newest := m.keys.keys[0]
	packed := append([]byte{1}, newest.name[:]...)
	nonce := m.nonce
	if nonce == nil {
		nonce = make([]byte, nonceBytes)
		_, _ = rand.Read(nonce) // never fails
	}
	about := authenticated(packed, id, class)
	packed = newest.aead.Seal(append(packed, nonce...), nonce, args, about)
	return append(appendText([]byte{'['}, base64.StdEncoding.EncodeToString(packed)), ']'), nil
}

// digest is an HMAC of what makes an encrypted job unique: without it, possible arguments could be tried.
func (m making) digest(text []byte) ([]byte, error) {
	if m.keys == nil {
		return nil, &KeyError{"Encrypt, but there are no keys: Config.Keys has them"}
	}
	mac := hmac.New(sha256.New, m.keys.keys[0].digest[:])
	mac.Write(text)
	return mac.Sum(nil), nil
}

// Open is the arguments of an encrypted job, which are the only one of its args in Redis. It returns a [KeyError] if
// their key is missing, or if they were changed.
func (k *Keyring) Open(sealed, id, class string) ([]json.RawMessage, error) {
	packed, err := base64.StdEncoding.DecodeString(sealed)
	if err != nil || len(packed) < headBytes+nonceBytes+16 || packed[0] != 1 {
		return nil, &KeyError{"the job is marked as encrypted, but its arguments are not sealed"}
	}
	head, nonce, text := packed[:headBytes], packed[headBytes:headBytes+nonceBytes], packed[headBytes+nonceBytes:]
	for _, key := range k.keys {
		if string(key.name[:]) != string(head[1:]) {
			continue
		}
		opened, err := key.aead.Open(nil, nonce, text, authenticated(head, id, class))
		if err != nil {
			return nil, &KeyError{"the arguments were changed, or belong to a job of another id or class"}
		}
		var args []json.RawMessage
		if err := json.Unmarshal(opened, &args); err != nil {
			return nil, &KeyError{"the sealed arguments are not a list: " + err.Error()}
		}
		return args, nil
	}
	return nil, &KeyError{fmt.Sprintf("the arguments need the key %x", head[1:])}
}

func authenticated(head []byte, id, class string) []byte {
	about := appendText(append(slices.Clone(head), '['), id)
	return append(appendText(append(about, ','), class), ']')
}
