# frozen_string_literal: true

# Takes orders. Python writes the receipts: this enqueues one job for each.
require "sidekiq"

["ada@example.org", "bob@example.org", "eve@example.org"].each.with_index(1) do |email, order|
  # No class of this name exists in Ruby, so Sidekiq::Client.push instead of perform_async.
  jid = Sidekiq::Client.push("queue" => "receipts", "class" => "WriteReceipt", "args" => [order, email], "retry" => 5)
  puts "ordered #{order} as #{jid}"
end
