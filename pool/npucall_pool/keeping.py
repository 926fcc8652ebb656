"""A keeper at work on its host: a thread that watches a server."""

from __future__ import annotations

import json
import socket
import threading
from dataclasses import asdict
from pathlib import Path

from npucall_pool import environment
from npucall_pool.child import ChildProcess, own_folder
from npucall_pool.keeper import Keeper, Phase
from npucall_pool.order import HostValues, Order
from npucall_pool.ports import Ports

_LOOK_SECONDS = 0.2
_ENDED = (Phase.STOPPED, Phase.OUT)


class Keeping:
    """Keeps the server of an order until ``stop``. ``npus``: the numbers of the NPUs from Ray."""

    def __init__(self, order: Order, npus: tuple[str, ...] = ()) -> None:
        self._order = order
        self._number = npus[0] if npus else str(order.index)
        self._address = ""
        self._process: ChildProcess | None = None
        self._keeper = Keeper(self._start)
        self._changed = threading.Condition()
        # Only this thread starts servers. It lives as long as this process: see ServerProcess.
        threading.Thread(target=self._work, name="npucall-keeper", daemon=True).start()

    def status(self) -> str:
        """The history so far, as JSON."""
        with self._changed:
            course, process = asdict(self._keeper.course), self._process
            return json.dumps(
                {
                    **course,
                    "name": self._order.name,
                    "host": self._order.host,
                    "hostname": socket.gethostname(),
                    "address": self._address,
                    "device": self._device(),
                    "pid": process.pid if process is not None else 0,
                    "order": self._order.as_text(),
                }
            )

    def stop(self) -> str:
        """Tells the server to finish its calls and end; answers the status when it has ended."""
        with self._changed:
            self._keeper.stop(self._order.drain)
            self._changed.wait_for(lambda: self._keeper.course.phase in _ENDED)
        return self.status()

    def again(self) -> None:
        """Starts the server if it is out."""
        with self._changed:
            self._keeper.again()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._keeper.look()
                self._changed.notify_all()
                self._changed.wait(_LOOK_SECONDS)

    def _start(self) -> ChildProcess:
        order = self._order
        folder = own_folder(order.folder)
        port = Ports(*order.ports).free(order.host, order.port)
        found = HostValues(port, self._device(), self._number, folder, socket.gethostname())
        for path in Path(order.environment, "bin", order.program), order.set_env:
            if path and not Path(path).exists():
                raise FileNotFoundError(f"expected a file, found none at {path}")
        ready, log = folder / f"{order.name}.ready", folder / f"{order.name}.log"
        self._address = f"{order.host}:{port}"
        self._process = ChildProcess(order.command(found), ready, log)
        return self._process

    def _device(self) -> str:
        """The device, in the form of the server's setting."""
        if self._order.device != "cann":
            return self._order.device.replace("{index}", str(self._order.index))
        # If Ray has set the variable, CANN numbers the devices that the process sees from 0.
        is_alone = environment.visible_npus() == self._number
        return "cann:0" if is_alone else f"cann:{self._number}"
