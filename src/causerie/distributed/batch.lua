-- Carry out the operations in their order, each for itself, and write what they have changed.

local byte = string.byte
local words, at, states = ARGV[3], 1, {}

local function carried_out(own, count)
  local operation = operations[sub(own, 1, 1)]
  local read = operation[1]
  for number = 1, count do
    local low, middle, high = byte(words, at, at + 2)
    states[number], at = read(KEYS[low + 256 * middle + 65536 * high]), at + 3
  end
  operation[2](own, 2, states, count)
end

while at <= #words do
  local low, middle, high, keys, more_keys = byte(words, at, at + 4)
  local count = keys + 256 * more_keys
  local begins, before = at + 5 + 3 * count, count_answers + 1
  local ends = begins + low + 256 * middle + 65536 * high
  at = at + 5
  answer('') -- its length, once that is known
  if not pcall(carried_out, sub(words, begins, ends - 1), count) then
    for number = before + 1, count_answers do answers[number] = nil end
    count_answers = before
  end
  local length = 0
  for number = before + 1, count_answers do length = length + #answers[number] end
  answers[before], at = encode('<I', length), ends
end

for _, scope in pairs(scopes) do
  if scope.changed then write_scope(scope) end
end
for _, one in pairs(budgets) do
  if one.changed then write_budget(one) end
end
return table.concat(answers)
