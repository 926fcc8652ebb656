"""What is awaited elsewhere, for tests that wait in their own thread, and the other way round."""

from __future__ import annotations

import inspect
from typing import Any

from npucall_client.senders import finished


class Blocking:
    """Something whose coroutines are finished before they are answered."""

    def __init__(self, awaited: Any) -> None:
        self.awaited = awaited

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.awaited, name)
        if not inspect.iscoroutinefunction(found):
            return found
        return lambda *args, **kwargs: finished(found(*args, **kwargs))
