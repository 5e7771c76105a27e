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

from array import array
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any

from pipeplan.validation.simulation.pipeline import Link

__all__ = ["Events", "Network", "PortBusy"]

Handler = Callable[[float, Any, Any], None]


class Events:
    """The future: handlers by time, first scheduled first at equal times."""

    __slots__ = ("_count", "_heap")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Handler, Any, Any]] = []
        self._count = 0

    def at(self, time_ms: float, handler: Handler, a: Any, b: Any) -> None:
        """Call `handler(time_ms, a, b)` when it is that time."""
        self._count += 1
        heappush(self._heap, (time_ms, self._count, handler, a, b))

    def run(self) -> None:
        """Until nothing is left to happen."""
        heap = self._heap
        while heap:
            time_ms, _, handler, a, b = heappop(heap)
            handler(time_ms, a, b)


@dataclass(frozen=True, slots=True)
class PortBusy:
    """When ports were occupied, one entry an interval: `tag` is the message's or all-reduce's."""

    port: "array[int]"
    start_ms: "array[float]"
    end_ms: "array[float]"
    tag: "array[int]"


_Message = tuple[tuple[tuple[int, float], ...], float, Handler, Any, Any, int, int]
"""Hops and latency of the link, what is called on arrival with which two values, tag, rank."""


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
        self._arrivals = 0
        self._wakes = [False] * ports
        self._bulk: list[deque[_Bulk]] = [deque() for _ in range(ports)]
        self._bulk_since: list[float | None] = [None] * ports
        self._bulk_turn = [0] * ports
        self._owed_ms = [0.0] * ports
        self._record = record
        self._log: list[Any] = []

    def busy(self) -> PortBusy:
        """What was recorded so far, in the order it began or, of all-reduces, ended."""
        port, start_ms, end_ms, tag = (self._log[i::4] for i in range(4))
        return PortBusy(array("q", port), array("d", start_ms), array("d", end_ms), array("q", tag))

    def send(
        self,
        time_ms: float,
        link: Link,
        deliver: Handler,
        a: Any,
        b: Any,
        tag: int,
        rank: int,
    ) -> None:
        """Send a message; `deliver(time, a, b)` is called when all of it has arrived."""
        if link.hops:
            message = (link.hops, link.latency_ms, deliver, a, b, tag, rank)
            self._advance(time_ms, message, 0)
        else:
            self._events.at(time_ms + link.latency_ms, deliver, a, b)

    def send_bulk(
        self, time_ms: float, port: int, busy_ms: float, done: Handler, a: Any, b: Any, *, tag: int
    ) -> None:
        """Occupy a port for `busy_ms` in all, in as many pieces as it takes."""
        self._bulk[port].append(_Bulk(busy_ms, done, a, b, tag))
        if self._bulk_since[port] is None:
            if self._free_ms[port] <= time_ms and not self._wakes[port]:
                self._resume_bulk(time_ms, port)
            else:
                self._wake_when_free(port)

    def _advance(self, time_ms: float, message: _Message, hop: int) -> None:
        """The message could occupy its port number `hop` from now on."""
        port = message[0][hop][0]
        if self._free_ms[port] > time_ms or self._wakes[port]:
            self._wait(port, message, hop)
        else:
            self._start(time_ms, message, hop)

    def _wait(self, port: int, message: _Message, hop: int) -> None:
        self._arrivals += 1
        heappush(self._waiting[port], (message[-1], self._arrivals, message, hop))
        self._wake_when_free(port)

    def _start(self, time_ms: float, message: _Message, hop: int) -> None:
        """The message occupies its port number `hop`, and all further ones that it may at once."""
        hops, latency_ms, deliver, a, b, tag, _ = message
        free_ms, log = self._free_ms, self._log
        port, busy_ms = hops[hop]
        while True:
            end_ms = free_ms[port] = time_ms + busy_ms
            if self._bulk[port]:
                self._interrupt_bulk(time_ms, port, busy_ms)
            if self._record and end_ms > time_ms:
                log += (port, time_ms, end_ms, tag)
            hop += 1
            if hop == len(hops):
                self._events.at(end_ms + latency_ms, deliver, a, b)
                return
            port, busy_ms = hops[hop]
            if end_ms - busy_ms > time_ms:
                self._events.at(end_ms - busy_ms, self._advance, message, hop)
                return
            if free_ms[port] > time_ms or self._wakes[port]:
                self._wait(port, message, hop)
                return

    def _interrupt_bulk(self, time_ms: float, port: int, busy_ms: float) -> None:
        """A message takes the port for `busy_ms`: the all-reduce that waits is owed as much."""
        since = self._bulk_since[port]
        if since is not None:
            bulk = self._bulk[port][0]
            bulk.remaining_ms = max(0.0, bulk.remaining_ms - (time_ms - since))
            self._bulk_since[port] = None
            self._bulk_turn[port] += 1
            self._note(port, since, time_ms, bulk.tag)
        self._owed_ms[port] += busy_ms
        self._wake_when_free(port)

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
            _, _, message, hop = heappop(waiting)
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
            self._log += (port, start_ms, end_ms, tag)
