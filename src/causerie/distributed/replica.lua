-- All that a replica does together with the others: operations that came together, carried out in
-- their order by one script. A key is read once, before the first one, and written once, after the
-- last one, however many of them need it.
--
-- KEYS: the processes; then every key that an operation names.
-- ARGV: the process, in eight characters; its life in milliseconds; the operations; and where the
--       process joins, its former name or ''. An operation is the length of its words in three
--       bytes, the number of its keys in two, the place of each in KEYS in three, and its words.
-- Gives 0 where the process is not known any more (it then joins anew). Else the time in
-- microseconds, and of each operation the length of its answer and the answer. An operation that
-- fails has an empty one and has changed nothing.
--
-- Everything is packed by struct: numbers that come and that are kept as doubles, those that go as
-- whole ones. This part keeps the processes. The next ones define the operations; batch.lua carries
-- them out.

local KEPT = '86400000' -- milliseconds that a key is kept: longer than any request runs

local encode, decode = struct.pack, struct.unpack

local process, life, former = ARGV[1], tonumber(ARGV[2]), ARGV[4]
local time = redis.call('TIME')
local clock = time[1] * 1000000 + time[2]
local milliseconds = math.floor(clock / 1000)

local ends = tonumber(redis.call('ZSCORE', KEYS[1], process) or 0)
if ends <= milliseconds and not former then return 0 end
if former then redis.call('ZREM', KEYS[1], former) end
if math.abs(milliseconds + life - ends) > 1000 then
  redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', milliseconds)
  redis.call('ZADD', KEYS[1], milliseconds + life, process)
end

local there = {[process] = true} -- processes, once asked for

local function lives(name)
  if there[name] == nil then
    local ends = redis.call('ZSCORE', KEYS[1], name)
    there[name] = ends ~= false and tonumber(ends) > milliseconds
  end
  return there[name]
end

local AT_ONCE = 1000 -- keys of one MGET; Lua passes no more than 8,000 values

local values = {} -- by key; false where there is none
for first = 2, #KEYS, AT_ONCE do
  local last = math.min(first + AT_ONCE - 1, #KEYS)
  local found = redis.call('MGET', unpack(KEYS, first, last))
  for number = first, last do values[KEYS[number]] = found[number - first + 1] end
end

local operations = {} -- by the first byte of the words: how a key is read, and what is done

local answers, count_answers = {encode('<i8', clock)}, 1

-- Add a part of the answer of the operation that is carried out.
local function answer(part)
  count_answers = count_answers + 1
  answers[count_answers] = part
end
