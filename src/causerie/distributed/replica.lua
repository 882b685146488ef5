-- All that a replica does together with the others: operations that came together, carried out in
-- their order by one script. What several of them need of a key is read and written once.
--
-- KEYS: the processes; then every key that an operation names.
-- ARGV: the process; its life in milliseconds; the operations in MessagePack; and where the process
--       joins, its former name or ''.
-- Gives 0 where the process is not known any more (it then joins anew). Else in MessagePack the
-- time in microseconds, and the answer to each operation.
--
-- This part keeps the processes. The next ones define the operations; batch.lua carries them out.

local KEPT = 86400000 -- milliseconds that a key is kept: longer than any request runs

local process, life, former = ARGV[1], tonumber(ARGV[2]), ARGV[4]
local time = redis.call('TIME')
local clock = time[1] * 1000000 + time[2]
local milliseconds = math.floor(clock / 1000)

local ends = tonumber(redis.call('ZSCORE', KEYS[1], process) or 0)
if ends <= milliseconds and not former then return 0 end
if former then redis.call('ZREM', KEYS[1], former) end
if math.abs(milliseconds + life - ends) > 1000 then
  redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', milliseconds)
  redis.call('ZADD', KEYS[1], milliseconds + life, process)
end

local there = {[process] = true} -- processes, once asked for

local function lives(name)
  if there[name] == nil then
    local ends = redis.call('ZSCORE', KEYS[1], name)
    there[name] = ends ~= false and tonumber(ends) > milliseconds
  end
  return there[name]
end

local operations = {}

-- Report what this process holds of keys; first in its batch, before anything of them is read.
-- {KEY, COUNT or AMOUNT as text}, ...
function operations.report(operation)
  for number = 2, #operation do
    local key, held = unpack(operation[number])
    redis.call('HSET', key, process, held)
    redis.call('PEXPIRE', key, KEPT)
  end
  return 1
end
