-- Budgets. One in one period is a hash: what is spent of it ("spent"), and by process what its
-- running requests hold.
--
-- Amounts are whole numbers of any size a budget has, exact: two parts of which each is exact as a
-- double, the lower one below a billion. In the hash they are plain decimal numbers.

local BILLION, ZERO = 1000000000, {0, 0}

local function amount(text)
  if #text <= 9 then return {0, tonumber(text)} end
  return {tonumber(string.sub(text, 1, -10)), tonumber(string.sub(text, -9))}
end

local function written(value)
  if value[1] == 0 then return string.format('%.0f', value[2]) end
  return string.format('%.0f%09.0f', value[1], value[2])
end

local function less(one, other)
  return one[1] < other[1] or (one[1] == other[1] and one[2] < other[2])
end

local function plus(one, other)
  local low = one[2] + other[2]
  local carry = low >= BILLION and 1 or 0
  return {one[1] + other[1] + carry, low - carry * BILLION}
end

-- Never below zero.
local function minus(one, other)
  if less(one, other) then return ZERO end
  local low = one[2] - other[2]
  local borrow = low < 0 and 1 or 0
  return {one[1] - other[1] - borrow, low + borrow * BILLION}
end

local budgets = {} -- by key, once they are read

local function budget(key)
  local one = budgets[key]
  if one then return one end
  one = {others = ZERO, mine = ZERO}
  local found = redis.call('HGETALL', key)
  for place = 1, #found, 2 do
    local name, value = found[place], found[place + 1]
    if name == 'spent' then
      one.spent = amount(value)
    elseif name == process then
      one.mine, one.known = amount(value), true
    elseif lives(name) then
      one.others = plus(one.others, amount(value))
    else
      redis.call('HDEL', key, name)
    end
  end
  budgets[key] = one
  return one
end

-- Hold the estimate of a request against all of its budgets, or against none.
-- Whether what it says of spending was read from the database just now, then of every budget {KEY,
-- its amount, the estimate, what is spent of it as far as the process knows}.
-- Answers {-2} where what is spent of a budget is known neither here nor from the database; else 1
-- or 0 (held or not), and of every budget what was spent and what was held before.
function operations.hold(operation)
  local fits, answer = true, {1}
  for number = 3, #operation do
    if not (operation[2] or budget(operation[number][1]).spent) then return {-2} end
  end
  for number = 3, #operation do
    local key, limit, estimate, known = unpack(operation[number])
    local one = budget(key)
    -- What a process knows is never more than the truth, so the larger one is nearer to it.
    if not one.spent or less(one.spent, known) then
      one.spent, one.changed, one.holds = known, true, true
    end
    local held = plus(one.others, one.mine)
    if less(ZERO, estimate) and not less(plus(one.spent, held), limit) then fits = false end
    answer[#answer + 1], answer[#answer + 2] = one.spent, held
  end
  for number = 3, fits and #operation or 0 do
    local one, estimate = budget(operation[number][1]), operation[number][3]
    if less(ZERO, estimate) then
      one.mine, one.changed, one.holds = plus(one.mine, estimate), true, true
    end
  end
  if not fits then answer[1] = 0 end
  return answer
end

-- A request has ended: give back what it held of its budgets, and count what it spent.
-- The microsecond after which nobody waits for this any more, so that what was spent may stand in
-- the database already and must not be counted again; then of every budget {KEY, what it held, what
-- it spent}.
function operations.settle(operation)
  local waited = clock <= operation[2]
  for number = 3, #operation do
    local key, held, spent = unpack(operation[number])
    local one = budget(key)
    one.mine, one.changed = minus(one.mine, held), true
    if one.spent and waited then one.spent = plus(one.spent, spent) end
    -- else it is read from the database when it is asked for
  end
  return 1
end

local function write_budgets()
  for key, one in pairs(budgets) do
    if one.changed then
      local fields = {}
      if one.spent then fields = {'spent', written(one.spent)} end
      if less(ZERO, one.mine) then
        fields[#fields + 1], fields[#fields + 2] = process, written(one.mine)
      elseif one.known then
        redis.call('HDEL', key, process)
      end
      if #fields > 0 then redis.call('HSET', key, unpack(fields)) end
      if one.holds then redis.call('PEXPIRE', key, KEPT) end
    end
  end
end
