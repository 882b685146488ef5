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
  local found = redis.call('HMGET', key, process, 'spent')
  local left, fields = minus(amount(found[1]), amount(ARGV[arg])), {}
  if less({0, 0}, left) then
    fields = {process, written(left)}
  elseif found[1] then
    redis.call('HDEL', key, process)
  end
  if found[2] and waited then -- else it is read from the database when it is asked for
    fields[#fields + 1] = 'spent'
    fields[#fields + 1] = written(plus(amount(found[2]), amount(ARGV[arg + 1])))
    redis.call('PEXPIRE', key, kept)
  end
  if #fields > 0 then redis.call('HSET', key, unpack(fields)) end
end
return 1
