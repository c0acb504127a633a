"""Writing the online store in Redis.

There is a key for each value, and for each view one of its definition and one of its settled days.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import date

from halving.features.definition import Definition
from halving.features.online_values import PREFIX, hide_password, redis_client, redis_faults, value_prefix
from halving.features.packing import HEADER, TIMES, count_of, event_of
from resources.features.online_writer import WAIT, Withdrawal, deleted_value

_DAY_MS = 86_400_000
_AT_ONCE = 1_000  # values in one call of Redis' script, which holds up other clients for about a millisecond
_NEWER = """
local function newer(old, new)
  if old == '' then return true end
  -- They are compared as numbers, because texts are compared by the server's locale.
  local before = {struct.unpack('>I4I4I4I4I4', old)}
  local after = {struct.unpack('>I4I4I4I4I4', new)}
  for part = 1, 5 do
    if after[part] ~= before[part] then return after[part] > before[part] end
  end
  return false
end
local function set(key, value, lives)
  if lives > 0 then redis.call('SET', key, value, 'PX', lives) else redis.call('SET', key, value) end
end
"""
_TAKE_NEWER = f"""{_NEWER}
local taken, lives = 0, tonumber(ARGV[#KEYS + 1])
for place, key in ipairs(KEYS) do
  if newer(redis.call('GETRANGE', key, 0, {HEADER.size - 1}), ARGV[place]) then
    set(key, ARGV[place], lives)
    taken = taken + 1
  end
end
return taken
"""
_WITHDRAW = f"""{_NEWER}
local withdrawn, lives = 0, tonumber(ARGV[#ARGV])
for place = 1, #KEYS / 2 do
  local key, marker = KEYS[2 * place - 1], KEYS[2 * place]
  local times, generation, value = ARGV[3 * place - 2], ARGV[3 * place - 1], ARGV[3 * place]
  local there = redis.call('GETRANGE', key, 0, {HEADER.size - 1})
  if string.sub(there, 1, {TIMES.size}) == times
      and struct.unpack('>I4', string.sub(there, {TIMES.size + 1})) < struct.unpack('>I4', generation) then
    local gone = redis.call('GET', marker)
    if gone and (value == '' or not newer(gone, value)) then
      set(key, gone, redis.call('PTTL', marker))
    elseif value == '' then
      redis.call('DEL', key)
    else
      set(key, value, lives)
    end
    withdrawn = withdrawn + 1
  end
end
return withdrawn
"""


class RedisWriter:
    """The online store of a single Redis server, not of a cluster.

    A value's key expires when its time to live is over, counted from when the value was taken.
    """

    def __init__(self, address: str) -> None:
        self._address = hide_password(address)
        self._client = redis_client(address, WAIT)
        self._take_newer = self._client.register_script(_TAKE_NEWER)
        self._withdraw = self._client.register_script(_WITHDRAW)

    def define(self, definition: Definition) -> Definition:
        import redis

        key = PREFIX + definition.key.encode()
        with redis_faults(self._address):
            while True:
                with self._client.pipeline() as transaction:
                    transaction.watch(key)
                    before = transaction.get(key)
                    merged = definition
                    if before is not None:
                        merged = definition.merged_into(Definition.from_json(before))
                    transaction.multi()
                    transaction.set(key, merged.to_json())
                    try:
                        transaction.execute()
                    except redis.WatchError:
                        continue  # another writer was faster
                    return merged

    def put(self, view: str, values: Sequence[tuple[bytes, bytes]], ttl: int | None) -> int:
        prefix = value_prefix(view)
        taken = 0
        lives = _lives(ttl)
        with redis_faults(self._address):
            for start in range(0, len(values), _AT_ONCE):
                some = values[start : start + _AT_ONCE]
                taken += int(
                    self._take_newer(
                        [prefix + key for key, _ in some], [*(value for _, value in some), lives]
                    )
                )
        return taken

    def withdraw(self, view: str, withdrawals: Sequence[Withdrawal], ttl: int | None) -> int:
        withdrawn = 0
        with redis_faults(self._address):
            for start in range(0, len(withdrawals), _AT_ONCE):
                some = withdrawals[start : start + _AT_ONCE]
                keys = [
                    key
                    for row in some
                    for key in (value_prefix(view) + row.key, _marker_prefix(view) + row.key)
                ]
                values = [
                    part
                    for row in some
                    for part in (row.times, row.generation.to_bytes(4, "big"), row.value or b"")
                ]
                withdrawn += int(self._withdraw(keys, [*values, _lives(ttl)]))
        return withdrawn

    def values_of(
        self, view: str, first: int, end: int, generation: int
    ) -> Iterator[list[tuple[bytes, bytes]]]:
        prefix = value_prefix(view)
        position = 0
        with redis_faults(self._address):
            while True:
                position, keys = self._client.scan(position, match=prefix + b"*", count=_AT_ONCE)
                pipeline = self._client.pipeline(transaction=False)
                for key in keys:
                    pipeline.getrange(key, 0, HEADER.size - 1)
                values = zip([key.removeprefix(prefix) for key in keys], pipeline.execute(), strict=True)
                yield [
                    (key, header)
                    for key, header in values
                    if header and _is_between(header, first, end, generation)
                ]
                if position == 0:
                    return

    def has(self, view: str) -> bool:
        with redis_faults(self._address):
            return bool(self._client.exists(PREFIX + view.encode()))

    def settled_generations(self, view: str) -> dict[date, int]:
        with redis_faults(self._address):
            generations = self._client.hgetall(_settled_key(view))
        return {date.fromisoformat(day.decode()): int(generation) for day, generation in generations.items()}

    def settle(self, view: str, generations: Mapping[date, int]) -> None:
        # Of two writers the later one may note less than the other: then some days are looked at once more.
        if generations:
            with redis_faults(self._address):
                self._client.hset(
                    _settled_key(view),
                    mapping={day.isoformat(): number for day, number in generations.items()},
                )

    def delete(self, view: str, key: bytes, deleted_at: int, ttl: int | None) -> bool:
        import redis

        place = value_prefix(view) + key
        # Rows are pushed by whole days, so for a day longer than they count.
        lives = None
        if ttl is not None:
            lives = -(-ttl // 1000) + _DAY_MS
        with redis_faults(self._address):
            while True:
                with self._client.pipeline() as transaction:
                    transaction.watch(place)
                    value = transaction.get(place)
                    gone = deleted_value(value, deleted_at)
                    transaction.multi()
                    transaction.set(place, gone, px=lives)
                    transaction.set(_marker_prefix(view) + key, gone, px=lives)
                    try:
                        transaction.execute()
                    except redis.WatchError:
                        continue  # a push was faster
                    return value is not None and count_of(value) > 0

    def close(self) -> None:
        self._client.close()


def _is_between(header: bytes, first: int, end: int, generation: int) -> bool:
    return first <= event_of(header) < end and header[TIMES.size :] < generation.to_bytes(4, "big")


def _lives(ttl: int | None) -> int:
    """Milliseconds for which Redis keeps a value; 0: for ever."""
    if ttl is None:
        return 0
    return max(1, -(-ttl // 1000))


def _marker_prefix(view: str) -> bytes:
    """The prefix of the keys under which Redis keeps when entities were deleted."""
    return PREFIX + view.encode() + b"/deleted:"


def _settled_key(view: str) -> bytes:
    return PREFIX + view.encode() + b"/settled"
