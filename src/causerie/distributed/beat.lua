-- A process is still there. Gives the time, in microseconds, and 0 where it is not known any more; it
-- then joins anew.
--
-- KEYS: the processes. ARGV: its name, its life in milliseconds.

local now = redis.call('TIME')
local milliseconds = now[1] * 1000 + math.floor(now[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', milliseconds)
if not redis.call('ZSCORE', KEYS[1], ARGV[1]) then return 0 end
redis.call('ZADD', KEYS[1], milliseconds + ARGV[2], ARGV[1])
return now[1] * 1000000 + now[2]
