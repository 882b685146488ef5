-- Budgets. The value of one in one period has what is spent of it, where that is known, and by
-- process what its running requests hold.
--
-- Amounts are whole numbers of any size a budget has, exact: two parts of which each is exact as a
-- double, the lower one below a billion.

local BILLION = 1000000000
local SPENT, HELD, ENTRY_HELD = '<Bdd', '<c8dd', 24

local function less(high, low, other_high, other_low)
  return high < other_high or (high == other_high and low < other_low)
end

local function plus(high, low, other_high, other_low)
  high, low = high + other_high, low + other_low
  if low >= BILLION then return high + 1, low - BILLION end
  return high, low
end

-- Never below zero.
local function minus(high, low, other_high, other_low)
  if less(high, low, other_high, other_low) then return 0, 0 end
  high, low = high - other_high, low - other_low
  if low < 0 then return high - 1, low + BILLION end
  return high, low
end

local budgets = {} -- by key, once they are read

local function read_budget(key)
  local one = budgets[key]
  if one then return one end
  local value, known, spent, spent_low, at = values[key], 0, 0, 0
  if value then known, spent, spent_low, at = decode(SPENT, value) end
  one = {
    key = key, known = known, spent = spent, spent_low = spent_low, changed = false,
    mine = 0, mine_low = 0, others = 0, others_low = 0, rest = '',
  }
  for place = at or 1, value and #value or 0, ENTRY_HELD do
    local name, high, low = decode(HELD, value, place)
    if name == process then
      one.mine, one.mine_low = high, low
    elseif lives(name) then
      one.others, one.others_low = plus(one.others, one.others_low, high, low)
      one.rest = one.rest .. sub(value, place, place + ENTRY_HELD - 1)
    end
  end
  budgets[key] = one
  return one
end

-- Hold the estimate of a request against all of its budgets, or against none.
-- Whether what it says of spending was read from the database just now, then of every budget its
-- amount, the estimate, what is spent of it as far as the process knows.
-- Answers 2 where what is spent of a budget is known neither here nor from the database; else 1 or 0
-- (held or not), and of every budget what was spent and what was held before.
local function hold(words, at, states, count)
  local read, fits = string.byte(words, at) == 1, 1
  for number = 1, read and 0 or count do
    if states[number].known == 0 then return answer('\2') end
  end
  at = at + 1
  local stood = ''
  for number = 1, count do
    local one, limit, limit_low, estimate, estimate_low, known, known_low = states[number]
    limit, limit_low, estimate, estimate_low, known, known_low, at = decode('<dddddd', words, at)
    asked[2 * number - 1], asked[2 * number] = estimate, estimate_low
    -- What a process knows is never more than the truth, so the larger one is nearer to it.
    if one.known == 0 or less(one.spent, one.spent_low, known, known_low) then
      one.known, one.spent, one.spent_low, one.changed = 1, known, known_low, true
    end
    local held, held_low = plus(one.others, one.others_low, one.mine, one.mine_low)
    local high, low = plus(one.spent, one.spent_low, held, held_low)
    if estimate + estimate_low > 0 and not less(high, low, limit, limit_low) then fits = 0 end
    stood = stood .. encode('<i8i8i8i8', one.spent, one.spent_low, held, held_low)
  end
  for number = 1, fits * count do
    local one = states[number]
    one.mine, one.mine_low = plus(one.mine, one.mine_low, asked[2 * number - 1], asked[2 * number])
    one.changed = true
  end
  answer(encode('<B', fits) .. stood)
end

-- A request has ended: give back what it held of its budgets, and count what it spent.
-- The microsecond after which nobody waits for this any more, so that what was spent may stand in
-- the database already and must not be counted again; then of every budget what it held, what it
-- spent.
local function settle(words, at, states, count)
  local latest, held, held_low, spent, spent_low
  latest, at = decode('<d', words, at)
  for number = 1, count do
    local one = states[number]
    held, held_low, spent, spent_low, at = decode('<dddd', words, at)
    one.mine, one.mine_low = minus(one.mine, one.mine_low, held, held_low)
    if one.known == 1 and clock <= latest then
      one.spent, one.spent_low = plus(one.spent, one.spent_low, spent, spent_low)
    end -- else it is read from the database when it is asked for
    one.changed = true
  end
  answer('1')
end

-- This process joins: what its requests hold of each budget.
local function report_held(words, at, states, count)
  for number = 1, count do
    local one = states[number]
    one.mine, one.mine_low, at = decode('<dd', words, at)
    one.changed = true
  end
  answer('1')
end

operations.h = {read_budget, hold}
operations.s = {read_budget, settle}
operations.k = {read_budget, report_held}

local function write_budget(one)
  local held = one.rest
  if one.mine + one.mine_low > 0 then held = held .. encode(HELD, process, one.mine, one.mine_low) end
  if one.known == 0 and held == '' then
    redis.call('DEL', one.key)
  else
    redis.call('SET', one.key, encode(SPENT, one.known, one.spent, one.spent_low) .. held, 'PX', KEPT)
  end
end
