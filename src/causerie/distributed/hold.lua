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

if not fresh then
  for number = 2, #KEYS do
    if redis.call('HEXISTS', KEYS[number], 'spent') == 0 then return {-2} end
  end
end

local fits, reply = true, {1}
for number = 2, #KEYS do
  local key, arg = KEYS[number], 3 * number - 2
  local limit, estimate, known = amount(ARGV[arg]), amount(ARGV[arg + 1]), amount(ARGV[arg + 2])
  local spent, held = {0, 0}, {0, 0}
  local found = redis.call('HGETALL', key)
  for place = 1, #found, 2 do
    if found[place] == 'spent' then
      spent = amount(found[place + 1])
    elseif lives(found[place]) then
      held = plus(held, amount(found[place + 1]))
    else
      redis.call('HDEL', key, found[place])
    end
  end
  -- What a process knows is never more than the truth, so the larger one is nearer to it.
  if less(spent, known) then spent = known end
  redis.call('HSET', key, 'spent', written(spent))
  redis.call('PEXPIRE', key, kept)
  if written(estimate) ~= '0' and not less(plus(spent, held), limit) then fits = false end
  reply[#reply + 1] = written(spent)
  reply[#reply + 1] = written(held)
end
if not fits then
  reply[1] = 0
  return reply
end
for number = 2, #KEYS do
  local estimate = amount(ARGV[3 * number - 1])
  if written(estimate) ~= '0' then
    local mine = plus(amount(redis.call('HGET', KEYS[number], process)), estimate)
    redis.call('HSET', KEYS[number], process, written(mine))
  end
end
return reply
