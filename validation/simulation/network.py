"""Ports as resources: urgent messages first, and half of a contested port to all-reduces.

A message passes its ports cut-through: at each one it is occupied for bytes / bandwidth, begins no
earlier and ends no earlier than at the port before. With linear progress inside each port that is
exactly the condition that no byte leaves a port before it entered; the time of a message without
contention is that of the slowest port. A free port takes the waiting message of the least rank: the
sender of a message gives it one.

An all-reduce is bulk traffic, cut in small pieces: it is served whenever no message wants the port,
and where messages do, it gets as much time as they took since its last turn. Neither can starve the
other, and a port is never idle while anything waits for it.
"""

import heapq
import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pipeplan.validation.simulation.pipeline import Link

__all__ = ["Events", "Network", "PortBusy"]

Handler = Callable[[float, Any, Any], None]


class Events:
    """The future: handlers by time, first scheduled first at equal times."""

    __slots__ = ("_count", "_heap")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Handler, Any, Any]] = []
        self._count = itertools.count()

    def at(self, time_ms: float, handler: Handler, a: Any, b: Any) -> None:
        """Call `handler(time_ms, a, b)` when it is that time."""
        heapq.heappush(self._heap, (time_ms, next(self._count), handler, a, b))

    def run(self) -> None:
        """Until nothing is left to happen."""
        heap, pop = self._heap, heapq.heappop
        while heap:
            time_ms, _, handler, a, b = pop(heap)
            handler(time_ms, a, b)


@dataclass(slots=True)
class PortBusy:
    """When ports were occupied, one entry an interval: `tag` is the message's or all-reduce's."""

    port: list[int] = field(default_factory=list)
    start_ms: list[float] = field(default_factory=list)
    end_ms: list[float] = field(default_factory=list)
    tag: list[int] = field(default_factory=list)


class _Message:
    __slots__ = ("a", "b", "deliver", "hops", "latency_ms", "rank", "tag")

    def __init__(self, link: Link, deliver: Handler, a: Any, b: Any, tag: int, rank: int) -> None:
        self.rank = rank
        self.hops = link.hops
        self.latency_ms = link.latency_ms
        self.deliver = deliver
        self.a = a
        self.b = b
        self.tag = tag


class _Bulk:
    """Traffic of one all-reduce at one port."""

    __slots__ = ("a", "b", "done", "remaining_ms", "tag")

    def __init__(self, remaining_ms: float, done: Handler, a: Any, b: Any, tag: int) -> None:
        self.remaining_ms = remaining_ms
        self.done = done
        self.a = a
        self.b = b
        self.tag = tag


class Network:
    """All ports of a pipeline."""

    def __init__(self, events: Events, ports: int, *, record: bool) -> None:
        self._events = events
        self._free_ms = [0.0] * ports
        self._waiting: list[list[tuple[int, int, _Message, int]]] = [[] for _ in range(ports)]
        self._arrivals = itertools.count()
        self._wakes = [False] * ports
        self._bulk: list[deque[_Bulk]] = [deque() for _ in range(ports)]
        self._bulk_since: list[float | None] = [None] * ports
        self._bulk_turn = [0] * ports
        self._owed_ms = [0.0] * ports
        self.busy = PortBusy()
        self._record = record

    def send(
        self,
        time_ms: float,
        link: Link,
        deliver: Handler,
        a: Any,
        b: Any,
        *,
        tag: int,
        rank: int,
    ) -> None:
        """Send a message; `deliver(time, a, b)` is called when all of it has arrived."""
        self._advance(time_ms, _Message(link, deliver, a, b, tag, rank), 0)

    def send_bulk(
        self, time_ms: float, port: int, busy_ms: float, done: Handler, a: Any, b: Any, *, tag: int
    ) -> None:
        """Occupy a port for `busy_ms` in all, in as many pieces as it takes."""
        self._bulk[port].append(_Bulk(busy_ms, done, a, b, tag))
        if self._bulk_since[port] is None:
            free = self._free_ms[port] <= time_ms and not self._wakes[port]
            if free and not self._waiting[port]:
                self._resume_bulk(time_ms, port)
            else:
                self._wake_when_free(port)

    def _advance(self, time_ms: float, message: _Message, hop: int) -> None:
        """The message could occupy its port number `hop` from now on."""
        if hop == len(message.hops):
            arrival_ms = time_ms + message.latency_ms
            self._events.at(arrival_ms, message.deliver, message.a, message.b)
            return
        port = message.hops[hop][0]
        if self._free_ms[port] > time_ms or self._wakes[port] or self._waiting[port]:
            entry = (message.rank, next(self._arrivals), message, hop)
            heapq.heappush(self._waiting[port], entry)
            self._wake_when_free(port)
        else:
            self._start(time_ms, message, hop)

    def _start(self, time_ms: float, message: _Message, hop: int) -> None:
        port, busy_ms = message.hops[hop]
        end_ms = self._occupy(time_ms, port, busy_ms, message.tag)
        following = hop + 1
        if following == len(message.hops):
            self._events.at(end_ms + message.latency_ms, message.deliver, message.a, message.b)
            return
        ready_ms = end_ms - message.hops[following][1]
        if ready_ms > time_ms:
            self._events.at(ready_ms, self._advance, message, following)
        else:
            self._advance(time_ms, message, following)

    def _occupy(self, time_ms: float, port: int, busy_ms: float, tag: int) -> float:
        since = self._bulk_since[port]
        if since is not None:
            bulk = self._bulk[port][0]
            bulk.remaining_ms = max(0.0, bulk.remaining_ms - (time_ms - since))
            self._bulk_since[port] = None
            self._bulk_turn[port] += 1
            self._note(port, since, time_ms, bulk.tag)
        end_ms = time_ms + busy_ms
        self._free_ms[port] = end_ms
        self._note(port, time_ms, end_ms, tag)
        if self._bulk[port]:
            self._owed_ms[port] += busy_ms
            self._wake_when_free(port)
        return end_ms

    def _wake_when_free(self, port: int) -> None:
        if not self._wakes[port]:
            self._wakes[port] = True
            self._events.at(self._free_ms[port], self._wake, port, None)

    def _wake(self, time_ms: float, port: int, _: object) -> None:
        self._wakes[port] = False
        waiting, bulk = self._waiting[port], self._bulk[port]
        if self._free_ms[port] > time_ms:
            self._wake_when_free(port)
        elif bulk and self._bulk_since[port] is None and (self._owed_ms[port] or not waiting):
            # Until its share is served, messages find the port taken.
            share_ms = min(self._owed_ms[port], bulk[0].remaining_ms) if waiting else 0.0
            self._free_ms[port] = time_ms + share_ms
            self._resume_bulk(time_ms, port)
            if waiting:
                self._wake_when_free(port)
        elif waiting:
            _, _, message, hop = heapq.heappop(waiting)
            self._start(time_ms, message, hop)
            if waiting:
                self._wake_when_free(port)

    def _resume_bulk(self, time_ms: float, port: int) -> None:
        self._bulk_since[port] = time_ms
        self._bulk_turn[port] += 1
        self._owed_ms[port] = 0.0
        end_ms = time_ms + self._bulk[port][0].remaining_ms
        self._events.at(end_ms, self._bulk_ends, port, self._bulk_turn[port])

    def _bulk_ends(self, time_ms: float, port: int, turn: int) -> None:
        if turn != self._bulk_turn[port]:
            return  # a message interrupted it meanwhile
        bulk = self._bulk[port].popleft()
        since = self._bulk_since[port]
        assert since is not None
        self._note(port, since, time_ms, bulk.tag)
        self._bulk_since[port] = None
        self._bulk_turn[port] += 1
        if self._bulk[port]:
            self._resume_bulk(time_ms, port)
        bulk.done(time_ms, bulk.a, bulk.b)

    def _note(self, port: int, start_ms: float, end_ms: float, tag: int) -> None:
        if self._record and end_ms > start_ms:
            busy = self.busy
            busy.port.append(port)
            busy.start_ms.append(start_ms)
            busy.end_ms.append(end_ms)
            busy.tag.append(tag)
