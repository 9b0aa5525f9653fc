"""The hints of WatchChanges: numbered changes by others in the cloud. It keeps the last ones for a controller that reconnects."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from cloud import Cloud, CloudError, State
from cloudprovider.v1alpha1 import provider_pb2 as pb

#: The period at which the cloud is read while a caller watches, in seconds. A cloud with a feed of events does not need it.
EVERY = 0.25
KEPT = 1024


class Changes:
    def __init__(self, cloud: Cloud, boot_id: str, closing: asyncio.Event) -> None:
        self.cloud, self.boot_id, self.closing = cloud, boot_id, closing
        self._hints: deque[tuple[int, pb.WatchChangesResponse]] = deque(maxlen=KEPT)
        self._number = 0
        cloud.on_foreign_change = self._note

    def _note(self, before: State, after: State) -> None:
        old, new = ({i["id"]: i for i in state.instances} for state in (before, after))
        for instance in _differing(old, new):
            change = pb.InstanceChange(provider_id=instance["provider_id"], node_name=instance["name"])
            self._add(pb.WatchChangesResponse(instance=change))
        for lb in _differing(before.load_balancers, after.load_balancers):
            if mark := lb.get("owner"):
                change = pb.LoadBalancerChange(namespace=mark["namespace"], name=mark["name"])
                self._add(pb.WatchChangesResponse(load_balancer=change))
        if before.routes != after.routes:
            self._add(pb.WatchChangesResponse(routes=pb.RoutesChange()))

    def _add(self, hint: pb.WatchChangesResponse) -> None:
        self._number += 1
        hint.resume_token = f"{self.boot_id}/{self._number}"
        self._hints.append((self._number, hint))

    async def after(self, token: str) -> AsyncIterator[pb.WatchChangesResponse]:
        """Yields all hints after this token (from now on if it is empty), until the provider shuts down. If it does not know the token, or no longer has all of these hints, it yields a `resync` (PROV-5)."""
        last: int | None = self._number if not token else self._number_of(token)
        if not self._lacks_hints_after(last):
            # Before the first change, it sends the point from which it reports changes (PROV-21).
            yield pb.WatchChangesResponse(resume_token=f"{self.boot_id}/{last}")
        while not self.closing.is_set():
            if self._lacks_hints_after(last):
                last = self._number
                yield pb.WatchChangesResponse(resume_token=f"{self.boot_id}/{last}", resync=pb.Resync())
            for number, hint in list(self._hints):
                if number > last:
                    last = number
                    yield hint
            try:
                await asyncio.wait_for(self.closing.wait(), EVERY)
            except TimeoutError:
                try:
                    self.cloud.look()
                except CloudError:
                    pass  # No hint can be sent without the cloud. The callers of other RPCs get the error.

    def _lacks_hints_after(self, last: int | None) -> bool:
        oldest = self._hints[0][0] if self._hints else self._number + 1
        return last is None or last + 1 < oldest

    def _number_of(self, token: str) -> int | None:
        boot_id, _, number = token.partition("/")
        known = boot_id == self.boot_id and number.isascii() and number.isdigit() and len(number) < 20
        return int(number) if known and int(number) <= self._number else None


def _differing(old: dict[str, dict], new: dict[str, dict]) -> list[dict]:
    keys = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    return [new.get(key) or old[key] for key in keys]
