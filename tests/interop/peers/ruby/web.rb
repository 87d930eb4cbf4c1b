# frozen_string_literal: true

# Sidekiq's Web UI on the loopback port that is the first argument, with the session that its forms need.
require "logger"
require "rack"
require "securerandom"
require "sidekiq/web"

begin # Rack 3, which Sidekiq 7 and 8 come with
  require "rack/session"
  require "rackup/handler/webrick"
  Handler = Rackup::Handler::WEBrick
rescue LoadError
  require "rack/handler/webrick"
  Handler = Rack::Handler::WEBrick
end

app = Rack::Builder.new do
  use Rack::Session::Cookie, secret: SecureRandom.hex(32), same_site: true
  run Sidekiq::Web
end
quiet = {Logger: WEBrick::Log.new($stderr, WEBrick::Log::WARN), AccessLog: []}
Handler.run(app, Host: "127.0.0.1", Port: Integer(ARGV[0]), **quiet)
