"""`palimpsest serve` with a meter in its event loop; for `benchmarks.stalls`, which says where it writes.

The meter wakes every millisecond. SIGUSR1 writes what it saw since the last time, as JSON, to the file that
STALL_METER names: the longest time between two wakings, of the clock and of the loop's own processor time.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

from palimpsest.cli.main import main
from uvicorn import Server

_TICK_SECONDS = 0.001


class Meter:
    """The longest pauses of one loop, in milliseconds."""

    def __init__(self) -> None:
        self._wall: list[float] = []
        self._cpu: list[float] = []

    async def watch(self) -> None:
        """Until the loop ends."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, self.write)
        wall, cpu = time.perf_counter(), time.thread_time()
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            now, spent = time.perf_counter(), time.thread_time()
            self._wall.append((now - wall) * 1e3)
            self._cpu.append((spent - cpu) * 1e3)
            wall, cpu = now, spent

    def write(self) -> None:
        """The figures since the last time."""
        seen = {
            "wall": max(self._wall, default=0.0),
            "cpu": max(self._cpu, default=0.0),
            "over_50": sum(pause > 50 for pause in self._cpu),
        }
        self._wall.clear()
        self._cpu.clear()
        path = Path(os.environ["STALL_METER"])
        part = path.with_suffix(".part")
        part.write_text(json.dumps(seen))
        part.replace(path)


async def _startup(self: Server, sockets: list[socket.socket] | None = None) -> None:
    """As the program starts; the meter runs as long as the loop does."""
    self.meter = asyncio.create_task(Meter().watch())  # type: ignore[attr-defined]
    await _STARTUP(self, sockets)


_STARTUP = Server.startup

if __name__ == "__main__":
    Server.startup = _startup  # type: ignore[method-assign]
    sys.argv[0] = "palimpsest"
    main()
