"""The cloud: a state file that providers in any language can use in turn (../README.md describes it).

In your own provider this module is the client of your cloud's API. It knows no gRPC, and of the contract only the
codes of failures. It offers operations that can be slow and can fail, and a copy of the last state.
"""

import asyncio
import fcntl
import json
import os
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, AsyncIterator, Callable, TypeVar

FORMAT = 1
#: How long another process may hold the state file.
PATIENCE = 5.0
T = TypeVar("T")


class CloudError(Exception):
    """An error of the cloud. `code` is a code of the contract."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class State:
    """The cloud at one moment. It is immutable: a write creates a new one."""

    instances: list[dict[str, Any]] = field(default_factory=list)
    load_balancers: dict[str, dict[str, Any]] = field(default_factory=dict)
    routes: dict[str, dict[str, Any]] = field(default_factory=dict)
    last_number: int = 0
    #: The cloud's time less the system's, in milliseconds.
    clock_offset: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_name", {i["name"]: i for i in self.instances})
        object.__setattr__(self, "by_provider_id", {i["provider_id"]: i for i in self.instances if i.get("provider_id")})

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + self.clock_offset

    def living(self) -> dict[str, dict[str, Any]]:
        """The load balancers, without those whose deletion has ended."""
        now = self.now_ms()
        return {handle: lb for handle, lb in self.load_balancers.items() if lb.get("gone_at_ms", now + 1) > now}

    def without(self, handle: str) -> "State":
        """The state without a load balancer."""
        return replace(self, load_balancers={other: lb for other, lb in self.load_balancers.items() if other != handle})


@dataclass(frozen=True)
class Write:
    """One write: objects by handle or name, None for objects to remove."""

    line: str
    load_balancers: dict[str, dict[str, Any] | None] = field(default_factory=dict)
    routes: dict[str, dict[str, Any] | None] = field(default_factory=dict)
    last_number: int = 0


class Cloud:
    def __init__(self, path: Path) -> None:
        self.path = path
        #: When the cloud last answered (seconds since 1970; a refusal of one object is an answer), and how it has failed since then; None if it has not.
        self.last_success: float | None = None
        self.trouble: str | None = None
        #: Called when another process has changed the cloud: (before, after).
        self.on_foreign_change: Callable[[State, State], None] = lambda before, after: None
        self._state = State()
        self._learned_at = float("-inf")
        self._file: tuple[int, int, int] | None = None
        self._instances_text = "[]"
        self._turn = asyncio.Lock()

    def create_if_missing(self) -> None:
        """A new, empty cloud. Only at the start: if the file is missing later, that does not show that the instances are gone (INST-1)."""
        if not self.path.exists():
            self._save(State(), Write(""))

    def _beside(self, suffix: str) -> Path:
        return self.path.with_name(self.path.name + suffix)

    async def read(self, max_age: float = 0.0) -> State:
        """One operation that reads the cloud, unless it was read at most `max_age` seconds ago."""
        if time.monotonic() - self._learned_at <= max_age and max_age > 0:
            return self._state
        async with self._operation():
            return self.look()

    async def write(self, decide: Callable[[State], tuple[T, Write | None]]) -> T:
        """One operation that may write: `decide` gets the current cloud and returns its answer and the write, if any."""
        async with self._operation(), self._locked():
            state = self.look()
            answer, write = decide(state)
            if write is not None:
                self._save(state, write)
            return answer

    async def catalogue(self) -> dict[str, dict[str, Any]]:
        """One operation: the clusters and disks that the cloud knows; no provider writes them."""
        async with self._operation():
            return {"clusters": {}, "volumes": {}, **self._json(".catalogue.json")}

    @asynccontextmanager
    async def _operation(self) -> AsyncIterator[None]:
        """The weather of every operation. Its delay holds no lock, so it delays no other operation."""
        try:
            weather = self._json(".weather.json")
            if slow_ms := weather.get("slow_ms"):
                await asyncio.sleep(slow_ms / 1000)
            if code := weather.get("fail"):
                raise CloudError(code, f"the cloud is set to answer {code} to every operation")
            yield
        except CloudError as error:
            if error.code == "PRECONDITION":  # The cloud refuses the request: that is an answer (PROV-16).
                self.last_success, self.trouble = time.time(), None
            else:
                self.trouble = str(error)
            raise
        except Exception:  # The cloud answered; the error came afterwards.
            self.last_success, self.trouble = time.time(), None
            raise
        self.last_success, self.trouble = time.time(), None

    @asynccontextmanager
    async def _locked(self) -> AsyncIterator[None]:
        """Lets one writer at a time in, of this and all other processes. Each caller waits for at most PATIENCE."""
        lock = None
        try:
            async with asyncio.timeout(PATIENCE):
                async with self._turn:
                    lock = os.open(self._beside(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
                    while True:
                        try:
                            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                            break
                        except BlockingIOError:
                            await asyncio.sleep(0.01)
                    # A cancelled call ends here, before its write (CORE-8).
                    await asyncio.sleep(0)
        except TimeoutError:
            self._unlock(lock)
            raise CloudError("UNAVAILABLE", f"another process holds {self._beside('.lock')} for longer than {PATIENCE:.0f} s") from None
        except BaseException:
            self._unlock(lock)
            raise
        try:
            yield
        finally:
            self._unlock(lock)

    @staticmethod
    def _unlock(lock: int | None) -> None:
        if lock is not None:
            os.close(lock)

    def look(self) -> State:
        """The current state; the file is read only if it is not the one in memory. `on_foreign_change` gets the changes of others."""
        try:
            stat = os.stat(self.path)
            file = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
            if file != self._file:
                self._parse(json.loads(self.path.read_bytes()), file)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CloudError("UNAVAILABLE", f"{self.path}: the state file cannot be read: {error!r}") from error
        self._learned_at = time.monotonic()
        return self._state

    def _parse(self, content: dict[str, Any], file: tuple[int, int, int]) -> None:
        if content["format"] != FORMAT:
            raise CloudError("UNAVAILABLE", f"{self.path}: format {content['format']} is not {FORMAT}")
        before = self._state
        self._state = State(
            instances=content["instances"],
            load_balancers={lb["handle"]: lb for lb in content["load_balancers"]},
            routes={route["name"]: route for route in content["routes"]},
            last_number=content["last_number"],
            clock_offset=content["now_ms"] - content["saved_at_unix_ms"],
        )
        self._instances_text = json.dumps(content["instances"], separators=(",", ":"))
        first, self._file = self._file is None, file
        if not first:
            self.on_foreign_change(before, self._state)

    def _save(self, state: State, write: Write) -> None:
        """Replaces the file atomically: after a kill at any time, the path has the whole old or the whole new file."""
        after = replace(
            state,
            load_balancers=_changed(state.living(), write.load_balancers),
            routes=_changed(state.routes, write.routes),
            last_number=max(state.last_number, write.last_number),
        )
        now = time.time_ns() // 1_000_000
        head = {"format": FORMAT, "now_ms": max(0, now + state.clock_offset), "saved_at_unix_ms": now, "last_number": after.last_number}
        rest = {"load_balancers": list(after.load_balancers.values()), "routes": list(after.routes.values())}
        text = f'{json.dumps(head)[:-1]},\n"instances":{self._instances_text},\n{json.dumps(rest)[1:]}\n'
        new = self._beside(".new")
        try:
            with open(new, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                stat = os.fstat(file.fileno())
            os.rename(new, self.path)
            if write.line:
                with open(self._beside(".writes"), "a", encoding="utf-8") as file:
                    file.write(f"{write.line}\n")
        except OSError as error:
            self._file = None  # The next operation reads the file again.
            raise CloudError("UNAVAILABLE", f"{self.path}: the state file cannot be written: {error}") from error
        self._state, self._file = after, (stat.st_ino, stat.st_mtime_ns, stat.st_size)

    def _json(self, suffix: str) -> dict[str, Any]:
        try:
            return json.loads(self._beside(suffix).read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise CloudError("UNAVAILABLE", f"{self._beside(suffix)} cannot be read: {error}") from error


def _changed(objects: dict[str, Any], changes: dict[str, Any | None]) -> dict[str, Any]:
    return {key: value for key, value in {**objects, **changes}.items() if value is not None}
