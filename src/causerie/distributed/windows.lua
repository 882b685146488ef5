-- The last minute of scopes, as causerie.access.windows keeps it in memory: for every tenth of a
-- second (a tick) in which something was taken, its sums; and what runs in each process.
--
-- The value of a scope has the sums of all ticks; the newest tick; two runs of ticks, the oldest
-- ones ("front") and those of the newest one's page ("back"); then what runs, by process. A page is
-- two seconds. Pages between the two runs are fields of a hash, each with the number of the next
-- page: it is written when its last tick is over, and read when its first one is a minute old, or
-- when a request that began in it used less than was foreseen.

local MINUTE, PAGE, TICK = 600, 20, 100000 -- ticks; ticks; microseconds in one
local MINUTE_KEPT = 62000                  -- milliseconds after which no tick counts any more
local HEAD, ONE, RUNNING = '<ddddddddHH', '<dddd', '<c8d'
local SIZE = 32 -- bytes of one tick in a run
local NOTHING = {0, 0, 0, 0}

local scopes = {} -- by key, once they are read

local function read_scope(key)
  local scope = scopes[key]
  if scope then return scope end
  scope = {key = key, pages = {}, front = '', from = 1, back = '', mine = 0, others = 0, rest = ''}
  local value = values[key]
  if value then
    local front, back, at, name, count
    scope.requests, scope.input, scope.output, scope.tick, scope.tick_requests, scope.tick_input,
      scope.tick_output, scope.page, front, back, at = decode(HEAD, value)
    scope.front = string.sub(value, at, at + front - 1)
    scope.back = string.sub(value, at + front, at + front + back - 1)
    local begins = at + front + back
    at = begins
    while at <= #value do
      name, count, at = decode(RUNNING, value, at)
      if name == process then
        scope.mine = count
      elseif lives(name) then
        scope.others, scope.rest = scope.others + count, scope.rest .. encode(RUNNING, name, count)
      end
    end
  else
    scope.requests, scope.input, scope.output, scope.tick, scope.page = 0, 0, 0, 0, 0
    scope.tick_requests, scope.tick_input, scope.tick_output = 0, 0, 0
  end
  scopes[key] = scope
  return scope
end

local function page_of(tick)
  return math.floor(tick / PAGE)
end

-- A page of the hash: its ticks, and the number of the next page; nil where it was lost.
local function stored(scope, page)
  local value = scope.pages[page]
  if value == nil then
    value = redis.pcall('HGET', scope.key .. ':ticks', page)
    scope.pages[page] = value
  end
  if type(value) ~= 'string' then return nil end
  local next = decode('<d', value)
  return string.sub(value, 9), next
end

local function store(scope, page, run, next)
  scope.pages[page] = encode('<d', next) .. run
  scope.writes = scope.writes or {}
  scope.writes[page] = true
end

local function newest(scope)
  return encode(ONE, scope.tick, scope.tick_requests, scope.tick_input, scope.tick_output)
end

-- Make the next run the front, once the front is used up. False where only the newest tick is left.
local function advance(scope)
  local page, run, next = scope.page, scope.back, 0
  if page == 0 then
    scope.back = ''
  else
    run, next = stored(scope, page)
    if scope.writes then scope.writes[page] = nil end
    scope.pages[page] = false
    redis.pcall('HDEL', scope.key .. ':ticks', page)
    if next == page_of(scope.tick) then next = 0 end
    if not run then -- nobody knows what was in it and in those after it: only the last two count
      run, next, scope.back = scope.back, 0, ''
      scope.requests, scope.input, scope.output =
        scope.tick_requests, scope.tick_input, scope.tick_output
      for at = 1, #run, SIZE do
        local _, requests, input, output = decode(ONE, run, at)
        scope.requests, scope.input = scope.requests + requests, scope.input + input
        scope.output = scope.output + output
      end
    end
  end
  scope.front, scope.from, scope.page = run, 1, next
  return #run > 0
end

-- Without what began a minute ago, or is to come: a clock was put back.
local function open(scope, now)
  while scope.tick > 0 do
    local tick, requests, input, output, at = scope.tick
    if scope.from < #scope.front or advance(scope) then
      tick, requests, input, output, at = decode(ONE, scope.front, scope.from)
    end
    if math.abs(now - tick) < MINUTE then return end
    if not at or now - scope.tick >= MINUTE then
      if scope.page > 0 then redis.call('UNLINK', scope.key .. ':ticks') end
      scope.requests, scope.input, scope.output = 0, 0, 0
      scope.tick, scope.page, scope.writes, scope.pages = 0, 0, nil, {}
      scope.front, scope.from, scope.back = '', 1, ''
    else
      scope.requests, scope.input = scope.requests - requests, scope.input - input
      scope.output, scope.from = scope.output - output, at
    end
  end
end

-- Count in the newest tick, which is never older than one that is there.
local function put(scope, now, requests, input, output)
  if scope.tick < now then
    if scope.tick > 0 then
      local page, next, run = page_of(scope.tick), page_of(now), scope.back .. newest(scope)
      if page == next then
        scope.back = run
      else
        scope.back = ''
        if scope.page == 0 and scope.from > #scope.front then
          scope.front, scope.from = run, 1
        else
          store(scope, page, run, next)
          if scope.page == 0 then scope.page = page end
        end
      end
    end
    scope.tick, scope.tick_requests, scope.tick_input, scope.tick_output = now, 0, 0, 0
  end
  scope.requests, scope.tick_requests = scope.requests + requests, scope.tick_requests + requests
  scope.input, scope.tick_input = scope.input + input, scope.tick_input + input
  scope.output, scope.tick_output = scope.output + output, scope.tick_output + output
end

-- A run in which a tick has so much more; nil where the tick is not in it.
local function corrected(run, from, tick, requests, input, output)
  for at = from, #run, SIZE do
    if decode('<d', run, at) == tick then
      local _, before, before_input, before_output, after = decode(ONE, run, at)
      local one = encode(ONE, tick, before + requests, before_input + input, before_output + output)
      return string.sub(run, 1, at - 1) .. one .. string.sub(run, after)
    end
  end
end

-- Take something back from the tick in which it was counted, unless that is a minute ago.
local function take_back(scope, tick, requests, input, output)
  if tick == scope.tick then
    scope.tick_requests, scope.tick_input = scope.tick_requests + requests, scope.tick_input + input
    scope.tick_output = scope.tick_output + output
  else
    local back = corrected(scope.back, 1, tick, requests, input, output)
    local front = not back and corrected(scope.front, scope.from, tick, requests, input, output)
    scope.back, scope.front = back or scope.back, front or scope.front
    if not (back or front) then
      local page = page_of(tick)
      local run, next = stored(scope, page)
      run = run and corrected(run, 1, tick, requests, input, output)
      if not run then return end
      store(scope, page, run, next)
    end
  end
  scope.requests, scope.input = scope.requests + requests, scope.input + input
  scope.output = scope.output + output
end

-- Of each measure (requests, tokens, input, output) the tick with whose end this much is free, or
-- one; 0 where nothing is taken.
local function free_after(scope, counts, more)
  local used = {scope.requests, scope.input + scope.output, scope.input, scope.output}
  local found, left = {0, 0, 0, 0}, 0
  for measure = 1, 4 do
    if counts == 0 and measure > 1 then used[measure] = 0 end
    used[measure] = math.min(math.max(more[measure], 1), used[measure])
    if used[measure] > 0 then left = left + 1 end
  end
  local run, at, page, last = scope.front, scope.from, scope.page, false
  while left > 0 do
    local tick, requests, input, output
    if at < #run then
      tick, requests, input, output, at = decode(ONE, run, at)
    elseif page > 0 and page ~= page_of(scope.tick) then
      run, page = stored(scope, page)
      run, page, at = run or '', page or 0, 1
    elseif not last then
      run, at, last = scope.back .. newest(scope), 1, true
    else
      break
    end
    if tick then
      for measure, part in ipairs({requests, input + output, input, output}) do
        if used[measure] > 0 and part > 0 then
          used[measure], found[measure] = used[measure] - part, tick
          if used[measure] <= 0 then left = left - 1 end
        end
      end
    end
  end
  return unpack(found)
end

local function microseconds(given)
  return given > 0 and given or clock
end

local LIMITS = '<dddddBd'

-- Take from all scopes of a request, or from none.
-- The time or 0, input, then of every scope the limits of requests, tokens, input, output and
-- concurrent ones, whether tokens count, and the output to reserve.
-- Answers 1 or 0 (taken or not), the time, and of every scope the tick, the sums, what runs, and of
-- each measure the tick after which one more is free; where it is refused also that after which as
-- much as is wanted is.
local function take(words, at, states)
  local micros, input, first = decode('<dd', words, at)
  micros = microseconds(micros)
  local now, fits = math.floor(micros / TICK), 1
  at = first
  for _, scope in ipairs(states) do
    local requests, tokens, inputs, outputs, most, counts, reserve
    requests, tokens, inputs, outputs, most, counts, reserve, at = decode(LIMITS, words, at)
    open(scope, now)
    if scope.requests + 1 > requests or scope.mine + scope.others >= most then fits = 0 end
    if counts == 1 and (scope.input + scope.output + input + reserve > tokens
        or scope.input + input > inputs or scope.output + reserve > outputs) then
      fits = 0
    end
  end
  local answer = {encode('<Bi8', fits, micros)}
  at = first
  for _, scope in ipairs(states) do
    local requests, tokens, inputs, outputs, most, counts, reserve
    requests, tokens, inputs, outputs, most, counts, reserve, at = decode(LIMITS, words, at)
    local over, tick = fits == 0 and {
      scope.requests + 1 - requests,
      scope.input + scope.output + input + reserve - tokens,
      scope.input + input - inputs,
      scope.output + reserve - outputs,
    }, 0
    if fits == 1 then
      put(scope, now, 1, counts * input, counts * reserve)
      scope.mine, scope.changed, tick = scope.mine + 1, true, scope.tick
    end
    answer[#answer + 1] = encode(
      '<i8i8i8i8i8i8i8i8i8', tick, scope.requests, scope.input, scope.output,
      scope.mine + scope.others, free_after(scope, counts, NOTHING))
    if over then
      answer[#answer + 1] = encode('<i8i8i8i8', free_after(scope, counts, over))
    end
  end
  return table.concat(answer)
end

-- A request has ended: give its places back, and settle its tokens.
-- The time or 0, what of requests to count more (0, or -1 where the request was never told that it
-- was let in), then of every scope the tick in which was taken, how much more, or less, input and
-- output was used than was foreseen.
local function release(words, at, states)
  local micros, requests, tick, input, output
  micros, requests, at = decode('<dd', words, at)
  local now = math.floor(microseconds(micros) / TICK)
  for _, scope in ipairs(states) do
    tick, input, output, at = decode('<ddd', words, at)
    open(scope, now)
    scope.mine, scope.changed = math.max(scope.mine - 1, 0), true
    if tick > 0 and (requests < 0 or input < 0 or output < 0) then
      take_back(scope, tick, requests, math.min(input, 0), math.min(output, 0))
    end
    if input > 0 or output > 0 then
      put(scope, now, 0, math.max(input, 0), math.max(output, 0))
    end
  end
  return '1'
end

-- This process joins: what runs in it of each scope.
local function report_running(words, at, states)
  for _, scope in ipairs(states) do
    scope.mine, at = decode('<d', words, at)
    scope.changed = true
  end
  return '1'
end

operations.t = {read_scope, take}
operations.r = {read_scope, release}
operations.j = {read_scope, report_running}

local function write_scope(scope)
  local front = string.sub(scope.front, scope.from)
  local running = scope.rest
  if scope.mine > 0 then running = running .. encode(RUNNING, process, scope.mine) end
  if scope.tick == 0 and running == '' then
    redis.call('DEL', scope.key)
    return
  end
  local head = encode(HEAD, scope.requests, scope.input, scope.output, scope.tick,
    scope.tick_requests, scope.tick_input, scope.tick_output, scope.page, #front, #scope.back)
  redis.call('SET', scope.key, head .. front .. scope.back .. running,
    'PX', running == '' and MINUTE_KEPT or KEPT)
  if scope.writes then
    local pages = {}
    for page in pairs(scope.writes) do
      pages[#pages + 1], pages[#pages + 2] = page, scope.pages[page]
    end
    if #pages > 0 then
      redis.pcall('HSET', scope.key .. ':ticks', unpack(pages))
      redis.pcall('PEXPIRE', scope.key .. ':ticks', MINUTE_KEPT)
    end
  end
end
