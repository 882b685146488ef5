-- Send a message to all who listen. Gives how many there are, or -1 where that is not allowed.
--
-- KEYS: the channel. ARGV: the message.

local listeners = redis.pcall('PUBLISH', KEYS[1], ARGV[1])
if type(listeners) ~= 'number' then return -1 end
return listeners
