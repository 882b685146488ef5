-- Whole numbers of any size a budget has, exact: two parts of which each is exact as a double, the
-- lower one below a billion. As text they are plain decimal numbers.

local BILLION = 1000000000

local function amount(text)
  if not text then return {0, 0} end
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
  if less(one, other) then return {0, 0} end
  local low = one[2] - other[2]
  local borrow = low < 0 and 1 or 0
  return {one[1] - other[1] - borrow, low + borrow * BILLION}
end
