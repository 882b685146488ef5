-- The last minute of scopes, as causerie.access.windows keeps it in memory: for every tenth of a
-- second (a tick) in which something was taken, its sums; and what runs in each process.
--
-- A window is a hash. The field of a tick has its sums (requests, input, output), and which tick
-- comes next. The field "sum" has the sums of all, and which tick is the oldest and which the newest,
-- with a copy of their fields: mostly nothing else is read. No tick is 0. What runs is a hash of
-- counts by process.

local MINUTE, TICK = 600, 100000 -- ticks; microseconds in one
local MINUTE_KEPT = 62000        -- milliseconds after which nothing of a window counts any more
local OLDEST, NEWEST, NEXT = 4, 5, 4 -- places after the sums of a window and of a tick

local NOTHING = {0, 0, 0, 0}

local windows, running = {}, {} -- by key, once they are read

local function stored(key, field)
  local found = redis.call('HGET', key, field)
  return found and cmsgpack.unpack(found)
end

local function part(window, tick)
  local one = window.parts[tick]
  if one == nil then
    one = stored(window.key, tick)
    window.parts[tick] = one
  end
  return one
end

local function add(sums, requests, input, output)
  sums[1], sums[2], sums[3] = sums[1] + requests, sums[2] + input, sums[3] + output
end

local function read(key)
  local sum = stored(key, 'sum') or {0, 0, 0, 0, 0}
  local window = {key = key, sum = sum, parts = {}, changed = {}, gone = {}}
  if sum[NEWEST] > 0 then window.parts[sum[NEWEST]] = sum[7] end
  if sum[OLDEST] > 0 then window.parts[sum[OLDEST]] = sum[6] end
  windows[key] = window
  return window
end

-- The window at a tick, without what began a minute ago, or is to come: a clock was put back.
local function opened(key, now)
  local window = windows[key] or read(key)
  local sum = window.sum
  while sum[OLDEST] > 0 and math.abs(now - sum[OLDEST]) >= MINUTE do
    local oldest = sum[OLDEST]
    local gone = part(window, oldest)
    add(sum, -gone[1], -gone[2], -gone[3])
    sum[OLDEST] = gone[NEXT]
    if gone[NEXT] == 0 then sum[NEWEST] = 0 end
    window.parts[oldest], window.changed[oldest] = false, nil
    window.gone[#window.gone + 1] = oldest
  end
  return window
end

-- Count in the newest tick, which is never older than one that is there.
local function put(window, now, requests, input, output)
  local sum = window.sum
  local newest = sum[NEWEST]
  if newest < now then
    if newest == 0 then
      sum[OLDEST] = now
    else
      part(window, newest)[NEXT] = now
      window.changed[newest] = true
    end
    newest, sum[NEWEST], window.begins = now, now, true
    window.parts[now] = {0, 0, 0, 0}
  end
  add(sum, requests, input, output)
  add(part(window, newest), requests, input, output)
  window.changed[newest] = true
end

local function wanted(more, used)
  return math.min(math.max(more, 1), used)
end

-- Of each measure (requests, tokens, input, output) the tick with whose end this much is free, or
-- one; 0 where nothing is taken.
local function free_after(window, counts, more)
  local sum, found = window.sum, {0, 0, 0, 0}
  local tick, requests = sum[OLDEST], wanted(more[1], sum[1])
  local tokens, input, output = 0, 0, 0
  if counts then
    tokens = wanted(more[2], sum[2] + sum[3])
    input, output = wanted(more[3], sum[2]), wanted(more[4], sum[3])
  end
  while tick > 0 and (requests > 0 or tokens > 0 or input > 0 or output > 0) do
    local one = part(window, tick)
    if requests > 0 and one[1] > 0 then requests, found[1] = requests - one[1], tick end
    if tokens > 0 and one[2] + one[3] > 0 then tokens, found[2] = tokens - one[2] - one[3], tick end
    if input > 0 and one[2] > 0 then input, found[3] = input - one[2], tick end
    if output > 0 and one[3] > 0 then output, found[4] = output - one[3], tick end
    tick = one[NEXT]
  end
  return found
end

local function runner(key)
  local one = running[key]
  if not one then
    one = {more = 0}
    running[key] = one
  end
  return one
end

-- What runs in processes that are there.
local function runs(key)
  local one = runner(key)
  if not one.before then
    local found = redis.call('HGETALL', key)
    one.before = 0
    for place = 1, #found, 2 do
      if lives(found[place]) then
        one.before = one.before + tonumber(found[place + 1])
      else
        redis.call('HDEL', key, found[place])
      end
    end
  end
  return one.before + one.more
end

local function microseconds(given)
  return given > 0 and given or clock
end

-- Take from all scopes of a request, or from none.
-- The time or 0, input, then of every scope {WINDOW, RUNNING, limits of requests, tokens, input,
-- output and concurrent ones, whether tokens count, the output to reserve}.
-- Answers 1 or 0 (taken or not), the time, and of every scope the tick, the sums, what runs, and of
-- each measure the tick after which one more is free; where it is refused also that after which as
-- much as is wanted is.
function operations.take(operation)
  local micros, input = microseconds(operation[2]), operation[3]
  local now = math.floor(micros / TICK)
  local fits, answer, found = true, {1, micros}, {}
  for number = 4, #operation do
    local key, held, requests, tokens, inputs, outputs, most, counts, reserve =
      unpack(operation[number])
    local window = opened(key, now)
    local sum = window.sum
    local scope = {window = window, held = held, counts = counts, reserve = reserve, runs = 0}
    scope.over = {
      sum[1] + 1 - requests,
      sum[2] + sum[3] + input + reserve - tokens,
      sum[2] + input - inputs,
      sum[3] + reserve - outputs,
    }
    local over = scope.over
    if most < 2 ^ 53 then scope.runs = runs(held) end
    if over[1] > 0 or scope.runs >= most then fits = false end
    if counts and (over[2] > 0 or over[3] > 0 or over[4] > 0) then fits = false end
    found[#found + 1] = scope
  end
  if not fits then answer[1] = 0 end
  for _, scope in ipairs(found) do
    local window, sum, tick = scope.window, scope.window.sum, 0
    if fits then
      put(window, now, 1, scope.counts and input or 0, scope.counts and scope.reserve or 0)
      local one = runner(scope.held)
      one.more, one.begins = one.more + 1, one.begins or window.begins
      scope.runs, tick = scope.runs + 1, sum[NEWEST]
    end
    local first = free_after(window, scope.counts, NOTHING)
    local told = {tick, sum[1], sum[2], sum[3], scope.runs, first}
    if not fits then told[7] = free_after(window, scope.counts, scope.over) end
    answer[#answer + 1] = told
  end
  return answer
end

-- A request has ended: give its places back, and settle its tokens.
-- The time or 0, what of requests to count more (0, or -1 where the request was never told that it
-- was let in), then of every scope {WINDOW, RUNNING, the tick in which was taken, how much more, or
-- less, input and output was used than was foreseen}.
function operations.release(operation)
  local now, requests = math.floor(microseconds(operation[2]) / TICK), operation[3]
  for number = 4, #operation do
    local key, held, tick, input, output = unpack(operation[number])
    local window, one = opened(key, now), runner(held)
    one.more = one.more - 1
    if requests < 0 or input < 0 or output < 0 then
      local taken = part(window, tick)
      if taken then
        add(taken, requests, math.min(input, 0), math.min(output, 0))
        add(window.sum, requests, math.min(input, 0), math.min(output, 0))
        window.changed[tick] = true
      end
    end
    if input > 0 or output > 0 then
      put(window, now, 0, math.max(input, 0), math.max(output, 0))
    end
  end
  return 1
end

-- A key is kept for longer with each new tick, not with each request.
local function write_windows()
  for key, window in pairs(windows) do
    local sum, fields = window.sum, {}
    for tick in pairs(window.changed) do
      fields[#fields + 1], fields[#fields + 2] = tick, cmsgpack.pack(window.parts[tick])
    end
    if #window.gone > 0 then redis.call('HDEL', key, unpack(window.gone)) end
    if #window.gone > 0 or #fields > 0 then
      sum[6], sum[7] = part(window, sum[OLDEST]), part(window, sum[NEWEST])
      redis.call('HSET', key, 'sum', cmsgpack.pack(sum), unpack(fields))
    end
    if window.begins then redis.call('PEXPIRE', key, MINUTE_KEPT) end
  end
  for key, one in pairs(running) do
    local count = one.more ~= 0 and redis.call('HINCRBY', key, process, one.more)
    if count and count <= 0 then redis.call('HDEL', key, process) end
    if one.begins or count == one.more then redis.call('PEXPIRE', key, KEPT) end
  end
end
