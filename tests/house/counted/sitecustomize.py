"""Counts calls of the package's own functions, in a server started with this folder on PYTHONPATH.

While the file `on` stands in $CALLS_DIR, calls are counted; when it goes, their number stands in `calls`.
"""

import os
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

_FOLDER = Path(os.environ["CALLS_DIR"])
_PACKAGE = f"{os.sep}palimpsest{os.sep}"
_counted: list[int] = [0]
_counting: list[bool] = [False]


def _called(frame: FrameType, event: str, _: Any) -> None:
    if event == "call" and _counting[0] and _PACKAGE in frame.f_code.co_filename:
        _counted[0] += 1


def _watch() -> None:
    while True:
        on = (_FOLDER / "on").exists()
        if on and not _counting[0]:
            _counted[0], _counting[0] = 0, True
            (_FOLDER / "ready").touch()
        elif _counting[0] and not on:
            _counting[0] = False
            (_FOLDER / "calls.new").write_text(str(_counted[0]))
            (_FOLDER / "calls.new").rename(_FOLDER / "calls")
        time.sleep(0.02)


threading.Thread(target=_watch, daemon=True).start()
threading.setprofile(_called)
sys.setprofile(_called)
