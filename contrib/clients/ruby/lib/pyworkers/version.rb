# frozen_string_literal: true

module Pyworkers
  # The version of this gem.
  VERSION = "0.3.0"
  # The version of the contract between producers and servers that this gem speaks.
  WIRE = 1
end
