-- The last minute of a scope, as causerie.access.windows keeps it in memory: for every tenth of a
-- second in which something was taken, its sums. What both scripts need; see take.lua.
--
-- A window is a hash (field "sum", and one field a tick; values "REQUESTS INPUT OUTPUT") and a list
-- of its ticks, oldest first. What runs now is a hash of counts by process.

local MINUTE, TICK = 600, 100000 -- ticks; microseconds in one
local KEPT = 62000               -- milliseconds after which nothing of a window counts any more
local LONGEST = 86400000         -- milliseconds; longer than any request runs

-- Microseconds: the server's, so that replicas agree; or a test's.
local function moment(given)
  if given ~= '' then return tonumber(given) end
  local now = redis.call('TIME')
  return now[1] * 1000000 + now[2]
end

local function counts(text)
  if not text then return {0, 0, 0} end
  local requests, input, output = string.match(text, '^(%-?%d+) (%-?%d+) (%-?%d+)$')
  return {tonumber(requests), tonumber(input), tonumber(output)}
end

local function add(window, field, more)
  local sum = counts(redis.call('HGET', window, field))
  for part = 1, 3 do sum[part] = sum[part] + more[part] end
  redis.call('HSET', window, field, string.format('%.0f %.0f %.0f', sum[1], sum[2], sum[3]))
  return sum
end

-- Leave out the ticks that began a minute ago, or are to come: a clock was put back. Gives what is
-- left.
local function forget(window, ticks, now)
  local oldest = redis.call('LINDEX', ticks, 0)
  while oldest and math.abs(now - tonumber(oldest)) >= MINUTE do
    local gone = counts(redis.call('HGET', window, oldest))
    add(window, 'sum', {-gone[1], -gone[2], -gone[3]})
    redis.call('HDEL', window, oldest)
    redis.call('LPOP', ticks)
    oldest = redis.call('LINDEX', ticks, 0)
  end
  return counts(redis.call('HGET', window, 'sum'))
end

-- Count in the newest tick, which is never older than one that is there; gives it, and all sums.
local function put(window, ticks, now, more)
  local newest = redis.call('LINDEX', ticks, -1)
  if newest and tonumber(newest) >= now then
    now = tonumber(newest)
  else
    redis.call('RPUSH', ticks, string.format('%.0f', now))
  end
  add(window, string.format('%.0f', now), more)
  local sum = add(window, 'sum', more)
  redis.call('PEXPIRE', window, KEPT)
  redis.call('PEXPIRE', ticks, KEPT)
  return now, sum
end
