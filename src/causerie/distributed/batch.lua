-- Carry out the operations in their order, and write what they have changed.

local answers = {}
for number, operation in ipairs(cmsgpack.unpack(ARGV[3])) do
  answers[number] = operations[operation[1]](operation)
end
write_windows()
write_budgets()
return cmsgpack.pack({clock, answers})
