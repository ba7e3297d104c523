"""The plan as plan tools are given it, read as every other task list is (`notes.tasks`).

Knows nothing of other slots. A step without an id of its own has its place, from 1.
"""

from __future__ import annotations

from collections.abc import Mapping

from app.core.notes.acts import TaskList, TaskState, merged
from app.core.notes.tasks import tasks_of
from app.core.summary.working.arguments import Arguments, clean
from app.core.summary.working.clipping import clipped_line
from app.core.summary.working.limits import SlotLimits, plain_name
from app.core.summary.working.state import PlanStep, StepStatus

_STATUSES: Mapping[TaskState, StepStatus] = {
    "done": "done",
    "doing": "active",
    "dropped": "dropped",
    "open": "pending",
}
_STATES: Mapping[StepStatus, TaskState] = {status: state for state, status in _STATUSES.items()}


def planned(
    known: tuple[PlanStep, ...], name: str, arguments: Arguments, limits: SlotLimits
) -> tuple[PlanStep, ...] | None:
    """The plan after a call of the plan tool `name`; None when the call says nothing of steps."""
    given = arguments.given
    if given.get("todos") == []:
        return ()
    plain = plain_name(name)
    if plain == "taskcreate" and "id" not in given:
        given = {**given, "id": str(len(known) + 1)}
    tasks = tasks_of(plain, given, None)
    if tasks is None:
        return None
    before = TaskList(
        tuple((step.label, _STATES[step.status]) for step in known), ids=tuple(step.id for step in known)
    )
    found = merged(before, tasks)
    ids = found.ids or tuple("" for _ in found.items)
    steps = (
        PlanStep(
            clipped_line(clean(ident), limits.label_chars) or str(place),
            clipped_line(clean(label), limits.plan_step_chars),
            _STATUSES[state],
        )
        for place, ((label, state), ident) in enumerate(zip(found.items, ids, strict=True), 1)
    )
    return tuple(step for step in steps if step.label)[: limits.max_plan_steps]
