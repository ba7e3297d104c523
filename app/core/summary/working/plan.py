"""The plan as plan tools are given it: whole lists, merged lists, single steps, check lists as text.

Knows nothing of other slots. Labels stay as the tool was given them, on one line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from app.core.summary.working.arguments import Arguments, clean
from app.core.summary.working.clipping import clipped_line
from app.core.summary.working.limits import SlotLimits
from app.core.summary.working.state import PlanStep, StepStatus

_LIST_KEYS = ("todos", "plan", "steps", "tasks", "items", "todo_list", "todoList")
_LABEL_KEYS = ("content", "step", "label", "title", "subject", "description", "task", "text", "name")
_ID_KEYS = ("id", "taskId", "task_id", "stepId", "step_id")
_STATUSES: dict[str, StepStatus] = {
    "in_progress": "active",
    "inprogress": "active",
    "active": "active",
    "running": "active",
    "doing": "active",
    "completed": "done",
    "complete": "done",
    "done": "done",
    "finished": "done",
    "cancelled": "dropped",
    "canceled": "dropped",
    "skipped": "dropped",
    "deleted": "dropped",
    "dropped": "dropped",
}
_CHECKED: dict[str, StepStatus] = {"x": "done", "X": "done", "-": "active", "~": "active", ">": "active"}
_LINE = re.compile(r"^[ \t]*(?:[-*+]|\d+[.)])[ \t]+(?:\[(.)\][ \t]*)?(\S[^\n]*)$", re.MULTILINE)


def planned(
    known: tuple[PlanStep, ...], arguments: Arguments, limits: SlotLimits
) -> tuple[PlanStep, ...] | None:
    """The plan after a plan tool's call; None when the call says nothing of steps."""
    steps = _listed(arguments, limits)
    if steps is not None:
        merged = _merged(known, steps) if arguments.given.get("merge") is True else steps
        return merged[: limits.max_plan_steps]
    return _single(known, arguments.given, limits)


def _listed(arguments: Arguments, limits: SlotLimits) -> tuple[PlanStep, ...] | None:
    listed = arguments.items(*_LIST_KEYS)
    if listed is not None:
        found = (_step(item, place, limits) for place, item in enumerate(listed, 1))
        return tuple(step for step in found if step is not None)
    text = arguments.text(*_LIST_KEYS)
    lines = _LINE.findall(text)
    return (
        tuple(
            PlanStep(str(place), clipped_line(label, limits.plan_step_chars), _CHECKED.get(mark, "pending"))
            for place, (mark, label) in enumerate(lines, 1)
        )
        if lines
        else None
    )


def _step(item: Any, place: int, limits: SlotLimits) -> PlanStep | None:
    if isinstance(item, str):
        item = {"content": item}
    if not isinstance(item, Mapping):
        return None
    label = clipped_line(_text(item, *_LABEL_KEYS), limits.plan_step_chars)
    ident = _ident(item, limits) or str(place)
    return PlanStep(ident, label, _status(item)) if label or _ident(item, limits) else None


def _single(
    known: tuple[PlanStep, ...], item: Mapping[str, Any], limits: SlotLimits
) -> tuple[PlanStep, ...] | None:
    """One step made or changed by itself."""
    ident = _ident(item, limits)
    step = _step(item, len(known) + 1, limits)
    if step is None:
        return None
    if ident:
        return _merged(known, (step,), changes_only="status" not in item)[-limits.max_plan_steps :]
    return (*known, step)[-limits.max_plan_steps :]


def _merged(
    known: tuple[PlanStep, ...], steps: tuple[PlanStep, ...], changes_only: bool = False
) -> tuple[PlanStep, ...]:
    found = {step.id: step for step in known}
    for step in steps:
        old = found.get(step.id)
        label = step.label or (old.label if old else "")
        status = old.status if old and changes_only else step.status
        if label:
            found[step.id] = PlanStep(step.id, label, status)
    return tuple(found.values())


def _status(item: Mapping[str, Any]) -> StepStatus:
    if item.get("done") is True or item.get("completed") is True:
        return "done"
    told = _text(item, "status", "state").lower().replace("-", "_").replace(" ", "_")
    return _STATUSES.get(told, "pending")


def _ident(item: Mapping[str, Any], limits: SlotLimits) -> str:
    found = next((item[key] for key in _ID_KEYS if isinstance(item.get(key), str | int)), "")
    return clipped_line(clean(str(found)), limits.label_chars)


def _text(item: Mapping[str, Any], *keys: str) -> str:
    found = (item.get(key) for key in keys)
    return next((clean(value) for value in found if isinstance(value, str) and value.strip()), "")
