-- The last minute of a scope, as causerie.access.windows keeps it in memory: for every tenth of a
-- second in which something was taken, its sums. What both scripts need; see take.lua.
--
-- A window is a hash (field "sum", and one field a tick; values "REQUESTS INPUT OUTPUT") and a list
-- of its ticks, oldest first. What runs now is a hash of counts by process.
--
-- A window is read by one call of the server and written by one, and its time to be kept is set with
-- each new tick only.

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

local function written(sum)
  return string.format('%.0f %.0f %.0f', sum[1], sum[2], sum[3])
end

local function add(sum, more)
  for part = 1, 3 do sum[part] = sum[part] + more[part] end
end

-- Leave out the ticks that began a minute ago, or are to come: a clock was put back.
local function forget(window, ticks, now)
  local oldest = redis.call('LINDEX', ticks, 0)
  while oldest and math.abs(now - tonumber(oldest)) >= MINUTE do
    local found = redis.call('HMGET', window, 'sum', oldest)
    local sum, gone = counts(found[1]), counts(found[2])
    add(sum, {-gone[1], -gone[2], -gone[3]})
    redis.call('HSET', window, 'sum', written(sum))
    redis.call('HDEL', window, oldest)
    redis.call('LPOP', ticks)
    oldest = redis.call('LINDEX', ticks, 0)
  end
  return oldest
end

-- What counts at a moment: the oldest and the newest tick, and the sums of all, and of these two.
local function opened(window, ticks, now)
  local oldest = forget(window, ticks, now)
  local newest = oldest and redis.call('LINDEX', ticks, -1)
  local found = redis.call('HMGET', window, 'sum', oldest or '', newest or '')
  return {
    oldest = oldest, newest = newest,
    sum = counts(found[1]), first = counts(found[2]), last = counts(found[3]),
  }
end

-- Count in the newest tick, which is never older than one that is there.
local function put(window, ticks, state, now, more)
  local begins = not state.newest or tonumber(state.newest) < now
  if begins then
    state.newest, state.last = string.format('%.0f', now), {0, 0, 0}
    redis.call('RPUSH', ticks, state.newest)
  end
  add(state.sum, more)
  add(state.last, more)
  if not state.oldest then state.oldest = state.newest end
  if state.oldest == state.newest then state.first = state.last end
  redis.call('HSET', window, 'sum', written(state.sum), state.newest, written(state.last))
  if begins then
    redis.call('PEXPIRE', window, KEPT)
    redis.call('PEXPIRE', ticks, KEPT)
  end
  return begins
end
