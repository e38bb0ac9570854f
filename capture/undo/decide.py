"""From a plan and a person's choices to what will be done. Pure: values in, values out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckpt_run.capture.model import Kind
from ckpt_run.capture.reasons import Reason
from ckpt_run.capture.undo.items import Action, Choices, Decision, Held, Item, Left, is_covered, parents

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ckpt_run.capture.model import Path
    from ckpt_run.capture.undo.items import Plan


def resolve(plan: Plan, choices: Choices) -> Decision:
    """Decide what is done: everything that nothing stands against, unless a held file stops all of it.

    Overlapping text is kept and stops nothing; any other held file stops unless it is kept, forced, or `rest`
    leaves it.
    """
    items: dict[Path, Item] = {}
    kept: list[Held] = []
    stopping: list[Held] = []
    for item in plan.items:
        if not _is_asked_for(item.path, choices):
            continue
        if is_covered(item.path, choices.keep):
            kept.append(Held(item.path, Reason.ASKED_TO_KEEP, now=item.now))
        else:
            items[item.path] = item
    for held in plan.held:
        if not _is_asked_for(held.path, choices):
            continue
        if is_covered(held.path, choices.keep):
            kept.append(held)
        elif held.forced is not None and is_covered(held.path, choices.force):
            items[held.path] = held.forced
        elif choices.rest or held.is_mergeable:
            kept.append(held)
        else:
            stopping.append(held)
    _take_parents(plan, items, choices)
    settled, blocked, left = settle(items, plan.kinds, plan.implied)
    (kept if choices.rest else stopping).extend(blocked)
    left.extend(one for one in plan.left if _is_asked_for(one.path, choices))
    if stopping:
        return Decision(plan, (), tuple(kept), tuple(left), tuple(stopping))
    return Decision(plan, settled, tuple(kept), tuple(left), ())


def _is_asked_for(path: Path, choices: Choices) -> bool:
    return not choices.only or is_covered(path, choices.only)


def _take_parents(plan: Plan, items: dict[Path, Item], choices: Choices) -> None:
    """With `only`, what is put back takes along the folders of the plan that it stands in."""
    if not choices.only:
        return
    wanted = {item.path: item for item in plan.items}
    for path, item in list(items.items()):
        for parent in parents(path) if item.target.kind != Kind.ABSENT else ():
            above = wanted.get(parent)
            if above is not None and above.target.kind == Kind.DIRECTORY:
                items.setdefault(parent, above)


def settle(
    selected: Mapping[Path, Item], kinds: Mapping[Path, str], implied: Mapping[Path, Item]
) -> tuple[tuple[Item, ...], list[Held], list[Left]]:
    """Drop what cannot be done beside the rest: no folder to stand in, or a folder that still holds something.

    Gives the items that remain (with the folders they imply), those held, and the folders quietly left.
    """
    items = dict(selected)
    held: list[Held] = []
    left: list[Left] = []
    while True:
        before = len(items)
        _drop_unreachable(items, held, kinds, implied)
        _drop_full_folders(items, held, left)
        if len(items) == before:
            break
    needed = [parent for item in items.values() for parent in _needed_folders(item, kinds)]
    for parent in needed:
        if parent not in items:
            items[parent] = implied[parent]
    return tuple(items.values()), held, left


def _needed_folders(item: Item, kinds: Mapping[Path, str]) -> Iterable[Path]:
    """The folders above a path to be put back where none stands now."""
    if item.target.kind == Kind.ABSENT:
        return ()
    return (parent for parent in parents(item.path) if kinds.get(parent) == Kind.ABSENT)


def _drop_unreachable(
    items: dict[Path, Item], held: list[Held], kinds: Mapping[Path, str], implied: Mapping[Path, Item]
) -> None:
    for path, item in sorted(items.items(), key=lambda pair: pair[0].count(b"/")):
        for parent in parents(path):
            above = items.get(parent)
            stands = kinds.get(parent, Kind.DIRECTORY)
            if above is not None:
                # What is below a folder that goes must go too, and what comes back needs a folder.
                is_way = (above.target.kind == Kind.DIRECTORY) or item.target.kind == Kind.ABSENT
            else:
                is_way = stands == Kind.DIRECTORY or (stands == Kind.ABSENT and parent in implied)
            if not is_way:
                held.append(Held(path, Reason.PARENT_CHANGED_SINCE, now=item.now))
                del items[path]
                break


def _drop_full_folders(items: dict[Path, Item], held: list[Held], left: list[Left]) -> None:
    """A folder goes only when everything in it goes: deepest first, since one that stays fills the next."""
    for path, item in sorted(items.items(), key=lambda pair: -pair[0].count(b"/")):
        if item.now.kind != Kind.DIRECTORY or item.target.kind == Kind.DIRECTORY:
            continue
        names = {path + b"/" + name for name in item.standing}
        names.update(other for other in items if parents(other)[:1] == [path])
        if all(name in items and items[name].target.kind == Kind.ABSENT for name in names):
            continue
        del items[path]
        if item.action == Action.REMOVE_FOLDER:
            left.append(Left(path, Reason.FOLDER_NOT_EMPTY))
        else:
            held.append(Held(path, Reason.FOLDER_NOT_EMPTY, now=item.now))
