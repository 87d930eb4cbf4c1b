# frozen_string_literal: true

require "openssl"

module Pyworkers
  # Keys of encrypted arguments (AES-256-GCM): the first one seals, each of them opens.
  class Keyring
    VERSION = "\x01".b
    NAME_BYTES = 8
    NONCE_BYTES = 12
    TAG_BYTES = 16
    KEY_BYTES = 32
    HEAD_BYTES = VERSION.bytesize + NAME_BYTES
    MAKE_ONE = "make a key with: openssl rand -base64 32"
    private_constant :VERSION, :NAME_BYTES, :NONCE_BYTES, :TAG_BYTES, :KEY_BYTES, :HEAD_BYTES, :MAKE_ONE

    # @param keys [Array<String>] 32 bytes each, or their base64; the newest first
    # @raise [BadArgumentError] for an invalid key
    def initialize(keys)
      raise BadArgumentError, "encryption: no key in the list" unless keys.is_a?(Array) && keys.any?

      parsed = keys.each_with_index.map { |key, place| parse(key, place) }
      @newest = parsed.first
      @keys = parsed.to_h { |key| [name_of(key), key] }
      @digest_key = OpenSSL::Digest.digest("SHA256", "pyworkers unique:".b + @newest)
    end

    # @param args [String] JSON
    # @return [String] the text that is the only argument of the job
    def seal(args, jid, job_class)
      head = VERSION + name_of(@newest)
      cipher = OpenSSL::Cipher.new("aes-256-gcm").encrypt
      cipher.key = @newest
      nonce = cipher.random_iv
      cipher.auth_data = head + about(jid, job_class)
      [head + nonce + cipher.update(args) + cipher.final + cipher.auth_tag].pack("m0")
    end

    # @return [Array] the arguments that a sealed text holds
    # @raise [EncryptionKeyError]
    def open(text, jid, job_class)
      head, nonce, sealed, tag = parts(text)
      name = head.byteslice(VERSION.bytesize..)
      key = @keys.fetch(name) do
        known = @keys.keys.map { |one| one.unpack1("H*") }.join(", ")
        raise EncryptionKeyError, "the arguments need the key #{name.unpack1("H*")}; there are: #{known}"
      end
      cipher = OpenSSL::Cipher.new("aes-256-gcm").decrypt
      cipher.key = key
      cipher.iv = nonce
      cipher.auth_tag = tag
      cipher.auth_data = head + about(jid, job_class)
      Json.decode((cipher.update(sealed) + cipher.final).force_encoding(Encoding::UTF_8))
    rescue OpenSSL::Cipher::CipherError
      raise EncryptionKeyError, "the arguments were changed, or belong to a job of another id or class"
    end

    # @return [String] a digest that needs the newest key, in hexadecimal digits
    def digest(text) = OpenSSL::HMAC.hexdigest("SHA256", @digest_key, text)

    # Shows no key.
    def inspect = "#<#{self.class} of #{@keys.size}>"

    private

    def parse(key, place)
      return key.b if key.is_a?(String) && key.bytesize == KEY_BYTES

      bytes = key.to_str.strip.tr("-_", "+/").unpack1("m0")
      return bytes if bytes.bytesize == KEY_BYTES

      raise BadArgumentError, "encryption[#{place}]: a key of #{bytes.bytesize} bytes, not #{KEY_BYTES}: #{MAKE_ONE}"
    rescue NoMethodError, ::ArgumentError => error
      raise error if error.is_a?(Error)

      raise BadArgumentError, "encryption[#{place}]: not base64: #{MAKE_ONE}"
    end

    # The name of a key, which tells nothing about it.
    def name_of(key) = OpenSSL::Digest.digest("SHA256", "pyworkers key name:".b + key).byteslice(0, NAME_BYTES)

    def about(jid, job_class) = Json.encode([jid, job_class], "jid").b

    def parts(text)
      packed = text.is_a?(String) ? text.unpack1("m0") : ""
      raise ::ArgumentError unless packed.start_with?(VERSION) && packed.bytesize >= HEAD_BYTES + NONCE_BYTES + TAG_BYTES

      [packed.byteslice(0, HEAD_BYTES), packed.byteslice(HEAD_BYTES, NONCE_BYTES),
       packed.byteslice((HEAD_BYTES + NONCE_BYTES)...-TAG_BYTES), packed.byteslice(-TAG_BYTES..)]
    rescue ::ArgumentError
      raise EncryptionKeyError, "the job is marked as encrypted, but its arguments are not sealed"
    end
  end
end
