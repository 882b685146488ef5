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

-- What runs in processes that are there.
local function running(processes, held, now)
  local sum, found = 0, redis.call('HGETALL', held)
  for place = 1, #found, 2 do
    local ends = redis.call('ZSCORE', processes, found[place])
    if ends and tonumber(ends) > now then
      sum = sum + tonumber(found[place + 1])
    else
      redis.call('HDEL', held, found[place])
    end
  end
  return sum
end

local process, micros, input = ARGV[1], moment(ARGV[2]), tonumber(ARGV[3])
local tick = math.floor(micros / TICK)
if not redis.call('ZSCORE', KEYS[1], process) then return {-1} end
local server = moment('') / 1000

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
  local sum = forget(scope.window, scope.ticks, tick)
  if scope.concurrent < 2 ^ 53 then
    scope.runs = running(KEYS[1], scope.held, server)
  end
  scope.sum = sum
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
  local one = scope.counts and 1 or 0
  local wanted = {1, one, one, one}
  if fits then
    local more = {1, 0, 0}
    if scope.counts then more = {1, input, scope.reserve} end
    scope.tick, scope.sum = put(scope.window, scope.ticks, tick, more)
    scope.runs = scope.runs + 1
    redis.call('HINCRBY', scope.held, process, 1)
    redis.call('PEXPIRE', scope.held, LONGEST)
  else
    for measure = 1, 4 do wanted[measure] = math.max(scope.over[measure], wanted[measure]) end
  end
  local first = free_after(scope.window, scope.ticks, {1, one, one, one})
  local last = fits and first or free_after(scope.window, scope.ticks, wanted)
  for _, part in ipairs({{scope.tick}, scope.sum, {scope.runs}, first, last}) do
    for _, value in ipairs(part) do reply[#reply + 1] = value end
  end
end
return reply
