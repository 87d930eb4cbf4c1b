# frozen_string_literal: true

require_relative "lib/pyworkers/version"

Gem::Specification.new do |spec|
  spec.name = "pyworkers"
  spec.version = Pyworkers::VERSION
  spec.summary = "Enqueues jobs for pyworkers, and reads their status and their results."
  spec.authors = ["The pyworkers authors"]
  spec.license = "MIT"
  spec.required_ruby_version = ">= 3.1"
  spec.files = Dir["lib/**/*.{rb,lua}", "README.md", base: __dir__]
  # Sidekiq 6 needs redis 4. With Sidekiq 7 and 8, which need redis-client, this gem was not run.
  spec.add_dependency "redis", ">= 4.6"
  spec.metadata["rubygems_mfa_required"] = "true"
end
