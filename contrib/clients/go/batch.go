package pyworkers

import _ "embed"

//go:embed batch.lua
var batchText string
