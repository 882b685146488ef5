-- A request has ended: give its places back, and settle its tokens.
--
-- KEYS: of every scope its window, its ticks, what runs.
-- ARGV: the process, the time or '', what of requests to count more (0, or -1 where the request was
--       never told that it was let in); then of every scope the tick in which was taken, and how
--       much input and output more, or less, was used than was foreseen.

local process, micros, requests = ARGV[1], moment(ARGV[2]), tonumber(ARGV[3])
for number = 1, #KEYS / 3 do
  local key, arg = 3 * number - 2, 3 * number + 1
  local window, ticks, held = KEYS[key], KEYS[key + 1], KEYS[key + 2]
  local tick, input, output = ARGV[arg], tonumber(ARGV[arg + 1]), tonumber(ARGV[arg + 2])
  if redis.call('HINCRBY', held, process, -1) <= 0 then redis.call('HDEL', held, process) end
  if requests < 0 or input < 0 or output < 0 then
    local found = redis.call('HMGET', window, 'sum', tick)
    if found[2] then
      local less = {requests, math.min(input, 0), math.min(output, 0)}
      local sum, part = counts(found[1]), counts(found[2])
      add(sum, less)
      add(part, less)
      redis.call('HSET', window, 'sum', written(sum), tick, written(part))
    end
  end
  if input > 0 or output > 0 then
    local now = math.floor(micros / TICK)
    local more = {0, math.max(input, 0), math.max(output, 0)}
    put(window, ticks, opened(window, ticks, now), now, more)
  end
end
return 1
