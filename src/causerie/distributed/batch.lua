-- Carry out the operations in their order, each for itself, and write what they have changed.

local words, at, states, answers = ARGV[3], 1, {}, {encode('<i8', clock)}

local function carried_out(begins, count)
  local read, act = unpack(operations[string.sub(words, begins, begins)])
  for number = 1, count do
    states[number] = read(KEYS[decode('<I', words, at + 4 * (number - 1))])
  end
  states[count + 1] = nil
  return act(words, begins + 1, states)
end

while at <= #words do
  local length, count
  length, count, at = decode('<II', words, at)
  local begins = at + 4 * count
  local done, answer = pcall(carried_out, begins, count)
  if not done then answer = '' end
  answers[#answers + 1] = encode('<I', #answer) .. answer
  at = begins + length
end

for _, scope in pairs(scopes) do
  if scope.changed then write_scope(scope) end
end
for _, one in pairs(budgets) do
  if one.changed then write_budget(one) end
end
return table.concat(answers)
