# frozen_string_literal: true

# Sidekiq's Web UI on the loopback port that is the first argument, with the session that its forms need.
require "logger"
require "rack"
require "rack/handler/webrick"
require "securerandom"
require "sidekiq/web"

app = Rack::Builder.new do
  use Rack::Session::Cookie, secret: SecureRandom.hex(32), same_site: true
  run Sidekiq::Web
end
quiet = {Logger: WEBrick::Log.new($stderr, WEBrick::Log::WARN), AccessLog: []}
Rack::Handler::WEBrick.run(app, Host: "127.0.0.1", Port: Integer(ARGV[0]), **quiet)
