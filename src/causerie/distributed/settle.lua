-- A request has ended: give back what it held of its budgets, and count what it spent.
--
-- KEYS: the processes; then the budgets.
-- ARGV: the process; the microsecond after which nobody waits for this any more, so that what was
--       spent may stand in the database already and must not be counted again; a budget's time to be
--       kept in milliseconds; then of every budget what it held, and what it spent.
-- Gives -1 where the process is not known, else 1.

local process, kept = ARGV[1], ARGV[3]
if not redis.call('ZSCORE', KEYS[1], process) then return -1 end
local time = redis.call('TIME')
local waited = time[1] * 1000000 + time[2] <= tonumber(ARGV[2])
for number = 2, #KEYS do
  local key, arg = KEYS[number], 2 * number
  local left = minus(amount(redis.call('HGET', key, process)), amount(ARGV[arg]))
  if written(left) == '0' then
    redis.call('HDEL', key, process)
  else
    redis.call('HSET', key, process, written(left))
  end
  local spent = redis.call('HGET', key, 'spent')
  if spent and waited then -- else it is read from the database when it is asked for
    redis.call('HSET', key, 'spent', written(plus(amount(spent), amount(ARGV[arg + 1]))))
    redis.call('PEXPIRE', key, kept)
  end
end
return 1
