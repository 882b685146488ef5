-- The last minute of scopes, as causerie.access.windows keeps it in memory: for every tenth of a
-- second (a tick) in which something was taken, its sums; and what runs in each process.
--
-- The value of a scope has the sums of all ticks; its newest tick; two runs of ticks, the oldest ones
-- ("front") and those before the newest one ("back"); then what runs, by process. Runs between the
-- two, of eight ticks, are fields of a hash by their first tick, which "index" lists: a run is
-- written there once it is full, and read when its first tick is a minute old, or when a request that
-- began in it used less than was foreseen. A scope with few ticks has no such hash. Runs are short
-- because Lua hashes every byte of each string that it makes.

local MINUTE, TICK = 600, 100000         -- ticks; microseconds in one
local MINUTE_KEPT = '62000'              -- milliseconds after which no tick counts any more
local HEAD, ONE, RUNNING = '<I4ddI5I3ddI5HHH', '<I5I3dd', '<c8I4'
local SIZE, FULL, ENTRY = 24, 8 * 24, 12   -- bytes: of a tick, of a run, and of what runs in a process

local floor, max, min, sub = math.floor, math.max, math.min, string.sub

local scopes = {} -- by key, once they are read

local function read_scope(key)
  local scope = scopes[key]
  if scope then return scope end
  local value = values[key]
  if not value then
    scope = {
      key = key, requests = 0, input = 0, output = 0, changed = false,
      tick = 0, tick_requests = 0, tick_input = 0, tick_output = 0, oldest = 0,
      index = '', front = '', from = 1, back = '', mine = 0, others = 0, rest = '',
    }
  else
    local requests, input, output, tick, tick_requests, tick_input, tick_output, oldest,
      index, front, back, at = decode(HEAD, value)
    front = at + front
    back = front + back
    index = back + index
    scope = {
      key = key, requests = requests, input = input, output = output, changed = false,
      tick = tick, tick_requests = tick_requests, tick_input = tick_input,
      tick_output = tick_output, oldest = oldest,
      front = sub(value, at, front - 1), from = 1, back = sub(value, front, back - 1),
      index = sub(value, back, index - 1), mine = 0, others = 0, rest = '',
    }
    for place = index, #value, ENTRY do
      local name, count = decode(RUNNING, value, place)
      if name == process then
        scope.mine = count
      elseif lives(name) then
        scope.others = scope.others + count
        scope.rest = scope.rest .. sub(value, place, place + ENTRY - 1)
      end
    end
  end
  scopes[key] = scope
  return scope
end

local function ticks_of(scope)
  return scope.key .. ':ticks'
end

-- A run of the hash, by its first tick; '' where it was lost.
local function stored(scope, first)
  local run = scope.runs and scope.runs[first] or redis.pcall('HGET', ticks_of(scope), first)
  return type(run) == 'string' and run or ''
end

local function store(scope, run)
  local runs = scope.runs or {}
  scope.runs, runs[sub(run, 1, 5)] = runs, run
end

local function newest(scope)
  return encode(ONE, scope.tick, scope.tick_requests, scope.tick_input, scope.tick_output)
end

local function sum_up(scope, run)
  scope.requests, scope.input = scope.tick_requests, scope.tick_input
  scope.output = scope.tick_output
  for at = 1, #run, SIZE do
    local _, requests, input, output = decode(ONE, run, at)
    scope.requests, scope.input = scope.requests + requests, scope.input + input
    scope.output = scope.output + output
  end
end

-- Make the next run the front, once the front is used up; '' where only the newest tick is left.
local function advance(scope)
  local run = scope.back
  if scope.index == '' then
    scope.back = ''
  else
    local first = sub(scope.index, 1, 5)
    run = stored(scope, first)
    redis.pcall('HDEL', ticks_of(scope), first)
    if scope.runs then scope.runs[first] = nil end
    scope.index = sub(scope.index, 6)
    if run == '' then -- what was in it is not known: what is known here counts
      run, scope.back, scope.index = scope.back, '', ''
      sum_up(scope, run)
    end
  end
  scope.front, scope.from = run, 1
end

-- Without what began a minute ago, or is to come: a clock was put back.
local function open(scope, now)
  while scope.tick > 0 and math.abs(now - scope.oldest) >= MINUTE do
    if scope.from > #scope.front then advance(scope) end
    if scope.front == '' or now - scope.tick >= MINUTE then
      if scope.index ~= '' then redis.call('UNLINK', ticks_of(scope)) end
      scope.requests, scope.input, scope.output, scope.tick = 0, 0, 0, 0
      scope.index, scope.front, scope.from, scope.back, scope.runs = '', '', 1, '', nil
    else
      local _, requests, input, output, at = decode(ONE, scope.front, scope.from)
      scope.requests, scope.input = scope.requests - requests, scope.input - input
      scope.output, scope.from = scope.output - output, at
      if at > #scope.front then advance(scope) end
      scope.oldest = scope.front == '' and scope.tick or decode('<I5', scope.front, scope.from)
    end
  end
end

-- Count in the newest tick, which is never older than one that is there.
local function put(scope, now, requests, input, output)
  if scope.tick < now then
    if scope.tick == 0 then
      scope.oldest = now
    else
      scope.back = scope.back .. newest(scope)
      if #scope.back < FULL then -- goes on
      elseif scope.index == '' and scope.from > #scope.front then
        scope.front, scope.from, scope.back = scope.back, 1, ''
      else
        store(scope, scope.back)
        scope.index, scope.back = scope.index .. sub(scope.back, 1, 5), ''
      end
    end
    scope.tick, scope.tick_requests, scope.tick_input, scope.tick_output = now, 0, 0, 0
  end
  scope.requests, scope.tick_requests = scope.requests + requests, scope.tick_requests + requests
  scope.input, scope.tick_input = scope.input + input, scope.tick_input + input
  scope.output, scope.tick_output = scope.output + output, scope.tick_output + output
  scope.changed = true
end

-- A run in which a tick has so much more; nil where the tick is not in it.
local function corrected(run, from, tick, requests, input, output)
  if from > #run or tick < decode('<I5', run, from) then return nil end
  for at = #run - SIZE + 1, from, -SIZE do
    local this = decode('<I5', run, at)
    if this == tick then
      local _, before, before_input, before_output, after = decode(ONE, run, at)
      local one = encode(ONE, tick, before + requests, before_input + input, before_output + output)
      return sub(run, 1, at - 1) .. one .. sub(run, after)
    elseif this < tick then
      return nil
    end
  end
end

-- Whether there is still the tick of which something is given back; if so, it has so much more.
local function amend(scope, tick, requests, input, output)
  if tick == scope.tick then
    scope.tick_requests, scope.tick_input = scope.tick_requests + requests, scope.tick_input + input
    scope.tick_output = scope.tick_output + output
    return true
  end
  local run = corrected(scope.back, 1, tick, requests, input, output)
  if run then
    scope.back = run
    return true
  end
  for at = #scope.index - 4, 1, -5 do
    if decode('<I5', scope.index, at) <= tick then
      run = corrected(stored(scope, sub(scope.index, at, at + 4)), 1, tick, requests, input, output)
      if run then store(scope, run) end
      return run ~= nil
    end
  end
  run = corrected(scope.front, scope.from, tick, requests, input, output)
  scope.front = run or scope.front
  return run ~= nil
end

-- Of each measure (requests, tokens, input, output) the tick with whose end so much is free; 0 where
-- nothing is taken.
local function free_after(scope, more)
  local used = {scope.requests, scope.input + scope.output, scope.input, scope.output}
  local found, open = {0, 0, 0, 0}, 0
  for measure = 1, 4 do
    used[measure] = min(max(more[measure], 1), used[measure])
    if used[measure] > 0 then open = open + 1 end
  end
  local run, at, place = sub(scope.front, scope.from), 1, 1
  while open > 0 do
    local tick, requests, input, output
    if at > #run and place > #scope.index + 5 then break end
    if at > #run then
      local last = place > #scope.index
      run = last and scope.back .. newest(scope) or stored(scope, sub(scope.index, place, place + 4))
      at, place = 1, place + 5
    else
      tick, requests, input, output, at = decode(ONE, run, at)
      local parts = {requests, input + output, input, output}
      for measure = 1, 4 do
        if used[measure] > 0 and parts[measure] > 0 then
          used[measure], found[measure] = used[measure] - parts[measure], tick
          if used[measure] <= 0 then open = open - 1 end
        end
      end
    end
  end
  return encode('<i8i8i8i8', unpack(found))
end

local ANY = {1, 1, 1, 1}

-- Of each measure the tick with whose end one more is free: mostly the oldest one.
local function first_free(scope)
  local oldest, requests, input, output = scope.tick, scope.tick_requests, scope.tick_input, scope.tick_output
  if scope.from <= #scope.front then
    oldest, requests, input, output = decode(ONE, scope.front, scope.from)
  elseif scope.back ~= '' then
    oldest, requests, input, output = decode(ONE, scope.back)
  end
  if requests > 0 and (input > 0 or scope.input == 0) and (output > 0 or scope.output == 0) then
    local inputs, outputs = scope.input > 0 and oldest or 0, scope.output > 0 and oldest or 0
    return encode('<i8i8i8i8', oldest, max(inputs, outputs), inputs, outputs)
  end
  return free_after(scope, ANY)
end

local LIMITS, WIDTH = '<dddddd', 48
local asked = {} -- numbers of the scopes or budgets of an operation, one after the other

-- Take from all scopes of a request, or from none.
-- The time or 0, input, then of every scope the limits of requests, tokens, input, output and
-- concurrent ones, and the output to reserve, or -1 where tokens do not count.
-- Answers 1 or 0 (taken or not), the time, and of every scope the tick, the sums, what runs, and of
-- each measure the tick after which one more is free; where it is refused also that after which as
-- much as is wanted is.
local function take(words, at, states, count)
  local micros, input
  micros, input, at = decode('<dd', words, at)
  if micros == 0 then micros = clock end
  local now, fits = floor(micros / TICK), true
  for number = 1, count do
    local scope = states[number]
    local requests, tokens, inputs, outputs, most, reserve
    requests, tokens, inputs, outputs, most, reserve, at = decode(LIMITS, words, at)
    open(scope, now)
    asked[number] = reserve
    if scope.requests + 1 > requests or scope.mine + scope.others >= most
        or reserve >= 0 and (scope.input + scope.output + input + reserve > tokens
        or scope.input + input > inputs or scope.output + reserve > outputs) then
      fits = false
    end
  end
  answer(encode('<Bi8', fits and 1 or 0, micros))
  at = at - WIDTH * count
  for number = 1, count do
    local scope, reserve, tick = states[number], asked[number], 0
    if fits then
      put(scope, now, 1, reserve >= 0 and input or 0, max(reserve, 0))
      scope.mine, tick = scope.mine + 1, scope.tick
    end
    answer(encode('<i8i8i8i8i8', tick, scope.requests, scope.input, scope.output,
      scope.mine + scope.others))
    answer(first_free(scope))
    if not fits then
      local requests, tokens, inputs, outputs = decode(LIMITS, words, at)
      at = at + WIDTH
      answer(free_after(scope, {
        scope.requests + 1 - requests,
        scope.input + scope.output + input + reserve - tokens,
        scope.input + input - inputs,
        scope.output + reserve - outputs,
      }))
    end
  end
end

-- A request has ended: give its places back, and settle its tokens.
-- The time or 0, what of requests to count more (0, or -1 where the request was never told that it
-- was let in), then of every scope the tick in which was taken, how much more, or less, input and
-- output was used than was foreseen.
local function release(words, at, states, count)
  local micros, requests, tick, input, output
  micros, requests, at = decode('<dd', words, at)
  local now = floor((micros == 0 and clock or micros) / TICK)
  for number = 1, count do
    local scope = states[number]
    tick, input, output, at = decode('<ddd', words, at)
    open(scope, now)
    scope.mine, scope.changed = max(scope.mine - 1, 0), true
    if requests < 0 or input < 0 or output < 0 then
      local less_input, less_output = min(input, 0), min(output, 0)
      if scope.tick > 0 and amend(scope, tick, requests, less_input, less_output) then
        scope.requests, scope.input = scope.requests + requests, scope.input + less_input
        scope.output = scope.output + less_output
      end
    end
    if input > 0 or output > 0 then put(scope, now, 0, max(input, 0), max(output, 0)) end
  end
  answer('1')
end

-- This process joins: what runs in it of each scope.
local function report_running(words, at, states, count)
  for number = 1, count do
    states[number].mine, at = decode('<d', words, at)
    states[number].changed = true
  end
  answer('1')
end

operations.t = {read_scope, take}
operations.r = {read_scope, release}
operations.j = {read_scope, report_running}

local function write_scope(scope)
  local front, running = scope.front, scope.rest
  if scope.from > 1 then front = sub(front, scope.from) end
  if scope.mine > 0 then running = running .. encode(RUNNING, process, scope.mine) end
  if scope.tick == 0 and running == '' then
    redis.call('DEL', scope.key)
    return
  end
  local head = encode(HEAD, scope.requests, scope.input, scope.output, scope.tick,
    scope.tick_requests, scope.tick_input, scope.tick_output, scope.oldest,
    #scope.index, #front, #scope.back)
  redis.call('SET', scope.key, head .. front .. scope.back .. scope.index .. running,
    'PX', running == '' and MINUTE_KEPT or KEPT)
  for first, run in pairs(scope.runs or {}) do
    redis.pcall('HSET', ticks_of(scope), first, run)
    redis.pcall('PEXPIRE', ticks_of(scope), MINUTE_KEPT)
  end
end
