-- Hold the estimate of a request against all of its budgets, or against none.
--
-- A budget in one period is a hash: what is spent of it ("spent"), and by process what its running
-- requests hold.
--
-- KEYS: the processes; then the budgets.
-- ARGV: the process; 1 where what it says of spending was read from the database just now, else 0; a
--       budget's time to be kept in milliseconds; then of every budget its amount, the estimate, and
--       what is spent of it as far as the process knows.
-- Gives {-1} where the process is not known, {-2} where what is spent of a budget is known neither
-- here nor from the database; else 1 or 0 (held or not), and of every budget as text what was spent
-- and what was held before.

local process, fresh, kept = ARGV[1], ARGV[2] == '1', ARGV[3]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if not redis.call('ZSCORE', KEYS[1], process) then return {-1} end

local there = {} -- processes, once asked for
local function lives(name)
  if there[name] == nil then
    local ends = redis.call('ZSCORE', KEYS[1], name)
    there[name] = ends ~= false and tonumber(ends) > now
  end
  return there[name]
end

local budgets = {}
for number = 2, #KEYS do
  local one = {held = {0, 0}, mine = {0, 0}}
  local found = redis.call('HGETALL', KEYS[number])
  for place = 1, #found, 2 do
    local name, value = found[place], found[place + 1]
    if name == 'spent' then
      one.was, one.spent = value, amount(value)
    elseif lives(name) then
      one.held = plus(one.held, amount(value))
      if name == process then one.mine = amount(value) end
    else
      redis.call('HDEL', KEYS[number], name)
    end
  end
  if not one.spent and not fresh then return {-2} end
  budgets[number] = one
end

local fits, reply = true, {1}
for number = 2, #KEYS do
  local one, arg = budgets[number], 3 * number - 2
  local limit, known = amount(ARGV[arg]), amount(ARGV[arg + 2])
  one.estimate = amount(ARGV[arg + 1])
  -- What a process knows is never more than the truth, so the larger one is nearer to it.
  if not one.spent or less(one.spent, known) then one.spent = known end
  if less({0, 0}, one.estimate) and not less(plus(one.spent, one.held), limit) then fits = false end
  reply[#reply + 1] = written(one.spent)
  reply[#reply + 1] = written(one.held)
end
if not fits then reply[1] = 0 end
for number = 2, #KEYS do
  local one = budgets[number]
  local spent, fields = written(one.spent), {}
  if spent ~= one.was then fields = {'spent', spent} end
  if fits and less({0, 0}, one.estimate) then
    fields[#fields + 1], fields[#fields + 2] = process, written(plus(one.mine, one.estimate))
  end
  if #fields > 0 then
    redis.call('HSET', KEYS[number], unpack(fields))
    redis.call('PEXPIRE', KEYS[number], kept)
  end
end
return reply
