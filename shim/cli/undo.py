"""`ckpt undo`, `rewind` and `redo`: plan, ask, apply, tell."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from ckpt_run.capture.errors import CkptError, Fault
from ckpt_run.capture.model import Run
from ckpt_run.capture.undo.apply import ChangedSince, Naming, undo
from ckpt_run.capture.undo.decide import resolve
from ckpt_run.capture.undo.items import Choices
from ckpt_run.capture.undo.plan import plan_undo
from ckpt_run.shim import card, card_verbs, question
from ckpt_run.shim.cli.here import add_project_option, inside, new_id, opened
from ckpt_run.shim.cli.output import print_json, print_text

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from ckpt_run.capture.model import Point
    from ckpt_run.capture.undo.apply import Undone
    from ckpt_run.capture.undo.items import Decision, Plan
    from ckpt_run.shim.cli.here import Here

EXIT_DONE = 0
EXIT_STOPPED = 3
EXIT_PARTIAL = 4


def add_arguments(parser: argparse.ArgumentParser, verb: str) -> None:
    """The verb's words."""
    if verb == "undo":
        parser.add_argument("id", nargs="?", help=card_verbs.ID)
    elif verb == "rewind":
        parser.add_argument("id", help=card_verbs.ID)
    parser.add_argument("--yes", "-y", action="store_true", help=card_verbs.YES)
    parser.add_argument("--dry-run", action="store_true", help=card_verbs.DRY_RUN)
    parser.add_argument("--json", action="store_true", help=card_verbs.JSON)
    parser.add_argument("--only", nargs="+", default=[], metavar="PATH", help=card_verbs.ONLY)
    parser.add_argument("--keep", nargs="+", default=[], metavar="PATH", help=card_verbs.KEEP)
    parser.add_argument("--force", nargs="+", default=[], metavar="PATH", help=card_verbs.FORCE)
    parser.add_argument("--rest", action="store_true", help=card_verbs.REST)
    add_project_option(parser)
    parser.set_defaults(run=run)


class Target:
    """What is to be undone: runs newest first, their points' ids, how many later points go too, what it redoes."""

    def __init__(self, runs: Sequence[Run], ids: Sequence[str], *, later: int = 0, redoes: str | None = None) -> None:
        """Hold the facts."""
        self.runs = list(runs)
        self.ids = list(ids)
        self.later = later
        self.redoes = redoes


def run(options: argparse.Namespace) -> int:
    """Undo, rewind or redo; gives 0, 3 (stopped for a decision) or 4 (some files were left). Raises CkptError."""
    with opened(options) as here:
        target = _target(options, here)
        choices = Choices(
            only=frozenset(inside(here, word) for word in options.only),
            keep=frozenset(inside(here, word) for word in options.keep),
            force=frozenset(inside(here, word) for word in options.force),
            rest=options.rest,
        )
        plan = plan_undo(
            target.runs, here.tree, here.contents, scratch=here.project.folder, others=_appeared(here, target)
        )
        decision = resolve(plan, choices)
        if options.dry_run:
            return _print_plan(options, target, decision)
        agreed = _agreed(options, target, plan, decision, choices)
        return agreed if isinstance(agreed, int) else _carry_out(options, here, target, agreed)


def _target(options: argparse.Namespace, here: Here) -> Target:
    if options.verb == "redo":
        last = here.store.next_to_redo()
        if last is None:
            raise CkptError(Fault.NOTHING_TO_REDO)
        return Target([last], [last.id], redoes=last.id)
    if getattr(options, "id", None) is None:
        point = here.store.next_to_undo()
        if point is None:
            raise CkptError(Fault.NO_POINTS)
        active = [one for one in reversed(point.runs) if not here.store.is_undone(one.id)]
        return Target(active, [point.id])
    named_point, named = _find(here, options.id)
    if options.verb == "undo":
        redoes = named[0].id if len(named) == 1 and named[0].undoes else None
        return Target(list(reversed(named)), [options.id], redoes=redoes)
    later = [
        one
        for one in here.store.runs_after(named[-1].id)
        if not one.undoes and not one.redoes and not here.store.is_undone(one.id)
    ]
    points = {one.point_id for one in later} - {named_point.id}
    return Target([*later, *reversed(named)], [named_point.id], later=len(points))


def _find(here: Here, text: str) -> tuple[Point, list[Run]]:
    """The point and runs of an id; one of another project is said to be so."""
    try:
        return here.store.find(text)
    except CkptError as error:
        if error.fault != Fault.UNKNOWN_ID:
            raise
        other = project_of(here, text)
        if other is None:
            raise
        raise CkptError(Fault.OTHER_PROJECT_ID, id=text, top=other) from error


def project_of(here: Here, text: str) -> bytes | None:
    """The top level of the other project in which this id is known; None when there is none."""
    from ckpt_run.capture import project as projects
    from ckpt_run.capture.store import open_store

    for other in projects.known_projects(os.environb):
        if other.folder == here.project.folder:
            continue
        try:
            with open_store(other.folder, create=False) as store:
                store.find(text)
        except CkptError:
            continue
        return other.top
    return None


def _appeared(here: Here, target: Target) -> list[bytes]:
    """Paths among which a file that is gone may stand under a new name: those beside it that no run names."""
    named = {change.path for one in target.runs for change in one.changes}
    gone = [change for one in target.runs for change in one.changes if change.reason is None and change.after.digest]
    found: list[bytes] = []
    for folder in {change.path.rpartition(b"/")[0] for change in gone if here.tree.status(change.path) is None}:
        try:
            fd = here.tree.open_folder(folder)
        except OSError:
            continue
        try:
            names = [os.fsencode(name) for name in os.listdir(fd)]
        finally:
            os.close(fd)
        prefix = folder + b"/" if folder else b""
        found += [prefix + name for name in names[:1000] if name != b".git" and prefix + name not in named]
    return found


def _print_plan(options: argparse.Namespace, target: Target, decision: Decision) -> int:
    if options.json:
        done: dict[str, list[str]] = {}
        for item in decision.items:
            if not item.implied:
                done.setdefault(item.action, []).append(os.fsdecode(item.path))
        print_json({"result": "planned", "actions": done, **_held_json(decision)})
    else:
        lines = [card_verbs.undo_title(target.ids, target.later), *card_verbs.plan_lines(decision.plan, decision)]
        print_text("\n".join(lines))
    if decision.stopped:
        return EXIT_STOPPED
    return EXIT_PARTIAL if decision.kept or decision.left else EXIT_DONE


def _held_json(decision: Decision) -> dict[str, list[dict[str, str]]]:
    def rows(held: Sequence[object]) -> list[dict[str, str]]:
        return [{"path": os.fsdecode(one.path), "reason": one.reason} for one in held]  # type: ignore[attr-defined]

    return {"kept": rows((*decision.kept, *decision.stopped)), "left": rows(decision.left)}


def _agreed(
    options: argparse.Namespace, target: Target, plan: Plan, decision: Decision, choices: Choices
) -> Decision | int:
    """Ask what has to be asked; gives the decision to carry out, or the exit code of one that is not."""
    asks = question.can_ask() and not options.json
    if decision.stopped:
        if not asks or options.yes:
            if options.json:
                print_json({"result": "stopped", **_nothing_done(), **_held_json(decision)})
            card.warn(card_verbs.stopped(decision.stopped))
            return EXIT_STOPPED
        answer = question.about_held(decision.stopped)
        if answer is None:
            return _cancelled()
        decision = resolve(plan, answer.added_to(choices))
        choices = answer.added_to(choices)
        if decision.stopped:
            card.warn(card_verbs.stopped(decision.stopped))
            return EXIT_STOPPED
    if options.yes or not decision.items:
        return decision
    if not asks:
        if options.json:
            print_json({"result": "stopped", **_nothing_done(), **_held_json(decision)})
        card.warn(f"ckpt: {card_verbs.NEEDS_YES}")
        return EXIT_STOPPED
    doubtful = [item.path for item in decision.items if item.path in plan.by_time and not item.implied]
    lines = [card_verbs.undo_title(target.ids, target.later), *card_verbs.plan_lines(plan, decision)]
    keep = question.about_plan(lines, doubtful)
    if keep is None:
        return _cancelled()
    if not keep:
        return decision
    return resolve(
        plan,
        Choices(only=choices.only, keep=choices.keep | keep, force=choices.force - keep, rest=choices.rest),
    )


def _cancelled() -> int:
    card.warn(f"ckpt: {card_verbs.CANCELLED}")
    return EXIT_STOPPED


def _nothing_done() -> dict[str, list[str]]:
    return {"restored": [], "removed": [], "merged": []}


def _carry_out(options: argparse.Namespace, here: Here, target: Target, decision: Decision) -> int:
    argv = [b"ckpt", *(os.fsencode(word) for word in (options.verb, *target.ids))]
    naming = Naming(new_id(), tuple(argv), here.project.top, target.redoes)
    try:
        with question.progress(len(decision.items)) as progress:
            done = undo(decision, here.store, here.tree, here.contents, naming, progress=progress)
    except ChangedSince as changed:
        if options.json:
            held = [{"path": os.fsdecode(one.path), "reason": one.reason} for one in changed.held]
            print_json({"result": "stopped", **_nothing_done(), "kept": held, "left": []})
        card.warn(card_verbs.changed_meanwhile(changed.held))
        return EXIT_STOPPED
    if done.run_id is None and target.runs:
        _note_as_undone(here, target, naming)
    _tell(options, target, done)
    return EXIT_PARTIAL if done.kept or done.left else EXIT_DONE


def _note_as_undone(here: Here, target: Target, naming: Naming) -> None:
    """Nothing had to be written; the next undo shall go one point further back all the same."""
    import time

    from ckpt_run.capture.model import State

    now = time.time_ns()
    here.store.record_run(
        Run(
            naming.undo_id,
            naming.argv,
            naming.cwd,
            now,
            ended_ns=now,
            exit_code=0,
            state=State.ENDED,
            undoes=[one.id for one in target.runs],
            redoes=target.redoes,
        ),
        {},
    )


def _tell(options: argparse.Namespace, target: Target, done: Undone) -> None:
    if options.json:

        def names(paths: Sequence[bytes]) -> list[str]:
            return [os.fsdecode(path) for path in paths]

        print_json(
            {
                "result": done.result,
                "id": done.run_id,
                "restored": names((*done.restored, *done.recovered, *done.chmod)),
                "removed": names(done.removed),
                "merged": names(done.merged),
                "kept": [{"path": os.fsdecode(one.path), "reason": one.reason} for one in done.kept],
                "left": [{"path": os.fsdecode(one.path), "reason": one.reason} for one in done.left],
                "git_moved": list(done.git_moved),
            }
        )
        return
    if done.run_id is None and not done.kept and not done.left:
        print_text(card_verbs.NOTHING_TO_UNDO)
        return
    partial_of = target.ids[0] if options.only and options.verb == "undo" else None
    print_text("\n".join(card_verbs.undone(done, target.ids, partial_of=partial_of)))
    sys.stdout.flush()
