-- A process begins, or begins anew: what it had counted under its former name no longer counts, and
-- what runs in it now does.
--
-- KEYS: the processes; then of every scope with something running what runs, and of every budget of
--       which something is held its hash.
-- ARGV: the former name or '', the name, its life in milliseconds, a key's time to be kept in
--       milliseconds; then of every key how many run, or how much is held.
-- Gives the time, in microseconds.

local now = redis.call('TIME')
if ARGV[1] ~= '' then redis.call('ZREM', KEYS[1], ARGV[1]) end
redis.call('ZADD', KEYS[1], now[1] * 1000 + math.floor(now[2] / 1000) + ARGV[3], ARGV[2])
for number = 2, #KEYS do
  redis.call('HSET', KEYS[number], ARGV[2], ARGV[number + 3])
  redis.call('PEXPIRE', KEYS[number], ARGV[4])
end
return now[1] * 1000000 + now[2]
