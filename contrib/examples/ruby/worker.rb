# frozen_string_literal: true

# Archives the receipts that Python wrote.
require "sidekiq"

$stdout.sync = true

class Archive
  include Sidekiq::Worker

  def perform(order, receipt)
    puts "archived order #{order}: #{receipt}"
  end
end
