-- Take from all scopes of a request, or from none.
--
-- KEYS: the processes; then of every scope its window, its ticks, what runs.
-- ARGV: the process, the time or '', input; then of every scope its limits (requests, tokens,
--       input, output, concurrent), whether tokens count, and the output to reserve.
-- Gives -1 where the process is not known; else 1 or 0 (taken or not), the time, and of every scope
--       the tick, the sums (requests, input, output), what runs, and of each measure (requests,
--       tokens, input, output) the tick after which one more is free, or as much as is wanted.

-- Of each measure the tick with whose end this much is free; 0 where nothing is taken.
local function free_after(window, ticks, wanted)
  local found, freed, at, size = {0, 0, 0, 0}, {0, 0, 0, 0}, 0, 4
  while true do
    local some = redis.call('LRANGE', ticks, at, at + size - 1)
    if #some == 0 then return found end
    local sums = redis.call('HMGET', window, unpack(some))
    for place, tick in ipairs(some) do
      local sum = counts(sums[place])
      local parts = {sum[1], sum[2] + sum[3], sum[2], sum[3]}
      local open = false
      for measure = 1, 4 do
        if freed[measure] < wanted[measure] then
          if parts[measure] ~= 0 then
            freed[measure] = freed[measure] + parts[measure]
            found[measure] = tonumber(tick)
          end
          open = open or freed[measure] < wanted[measure]
        end
      end
      if not open then return found end
    end
    at, size = at + size, 256
  end
end

-- The tick after which one more of each measure is free: mostly the oldest.
local function first_free(window, ticks, state, measures)
  local first, sum = state.first, state.sum
  local parts = {first[1], first[2] + first[3], first[2], first[3]}
  local sums = {sum[1], sum[2] + sum[3], sum[2], sum[3]}
  local found, oldest = {0, 0, 0, 0}, tonumber(state.oldest or 0)
  for measure = 1, measures do
    if parts[measure] ~= 0 then
      found[measure] = oldest
    elseif sums[measure] ~= 0 then
      local one = measures > 1 and 1 or 0
      return free_after(window, ticks, {1, one, one, one})
    end
  end
  return found
end

local there = {} -- processes, once asked for
local function lives(processes, name, now)
  if there[name] == nil then
    local ends = redis.call('ZSCORE', processes, name)
    there[name] = ends ~= false and tonumber(ends) > now
  end
  return there[name]
end

-- What runs in processes that are there.
local function running(processes, held, now)
  local sum, found = 0, redis.call('HGETALL', held)
  for place = 1, #found, 2 do
    if lives(processes, found[place], now) then
      sum = sum + tonumber(found[place + 1])
    else
      redis.call('HDEL', held, found[place])
    end
  end
  return sum
end

local process, micros, input = ARGV[1], moment(ARGV[2]), tonumber(ARGV[3])
local tick = math.floor(micros / TICK)
local ends = redis.call('ZSCORE', KEYS[1], process)
if not ends then return {-1} end
local server = ARGV[2] == '' and micros / 1000 or moment('') / 1000
there[process] = tonumber(ends) > server

local scopes, fits = {}, true
for number = 1, (#KEYS - 1) / 3 do
  local key, arg = 3 * number - 1, 7 * number - 3
  local scope = {
    window = KEYS[key], ticks = KEYS[key + 1], held = KEYS[key + 2],
    requests = tonumber(ARGV[arg]), tokens = tonumber(ARGV[arg + 1]),
    input = tonumber(ARGV[arg + 2]), output = tonumber(ARGV[arg + 3]),
    concurrent = tonumber(ARGV[arg + 4]), counts = ARGV[arg + 5] == '1',
    reserve = tonumber(ARGV[arg + 6]), runs = 0, tick = 0,
  }
  scope.state = opened(scope.window, scope.ticks, tick)
  if scope.concurrent < 2 ^ 53 then
    scope.runs = running(KEYS[1], scope.held, server)
  end
  local sum = scope.state.sum
  scope.over = {
    sum[1] + 1 - scope.requests,
    sum[2] + sum[3] + input + scope.reserve - scope.tokens,
    sum[2] + input - scope.input,
    sum[3] + scope.reserve - scope.output,
  }
  if scope.over[1] > 0 or scope.runs >= scope.concurrent then fits = false end
  if scope.counts and math.max(scope.over[2], scope.over[3], scope.over[4]) > 0 then fits = false end
  scopes[number] = scope
end

local reply = {fits and 1 or 0, micros}
for _, scope in ipairs(scopes) do
  local state, measures = scope.state, scope.counts and 4 or 1
  local last
  if fits then
    local more = {1, 0, 0}
    if scope.counts then more = {1, input, scope.reserve} end
    local begins = put(scope.window, scope.ticks, state, tick, more)
    scope.tick = tonumber(state.newest)
    scope.runs = scope.runs + 1
    redis.call('HINCRBY', scope.held, process, 1)
    if begins then redis.call('PEXPIRE', scope.held, LONGEST) end
  else
    local one = scope.counts and 1 or 0
    local wanted = {1, one, one, one}
    for measure = 1, 4 do wanted[measure] = math.max(scope.over[measure], wanted[measure]) end
    last = free_after(scope.window, scope.ticks, wanted)
  end
  local first = first_free(scope.window, scope.ticks, state, measures)
  for _, part in ipairs({{scope.tick}, state.sum, {scope.runs}, first, last or first}) do
    for _, value in ipairs(part) do reply[#reply + 1] = value end
  end
end
return reply
