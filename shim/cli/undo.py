"""`ckpt undo`, `rewind` and `redo`: plan, ask, apply, tell."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from ckpt_run.capture.errors import CkptError, Fault
from ckpt_run.capture.model import Run
from ckpt_run.capture.undo.apply import ChangedSince, Naming, undo
from ckpt_run.capture.undo.decide import resolve
from ckpt_run.capture.undo.items import Action, Choices
from ckpt_run.capture.undo.locks import locked
from ckpt_run.capture.undo.plan import plan_undo
from ckpt_run.shim import card, card_verbs, question
from ckpt_run.shim.cli.here import add_project_option, found, inside, new_id, opened
from ckpt_run.shim.cli.output import print_json, print_text

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from ckpt_run.capture.undo.apply import Undone
    from ckpt_run.capture.undo.items import Decision
    from ckpt_run.shim.cli.here import Here

EXIT_DONE = 0
EXIT_STOPPED = 3
EXIT_PARTIAL = 4


def add_arguments(parser: argparse.ArgumentParser, verb: str) -> None:
    """The verb's words."""
    if verb == "undo":
        parser.add_argument(
            "id", nargs="?", help="a point or a run, or the beginning of its id (default: the newest)"
        )
    elif verb == "rewind":
        parser.add_argument("id", help="a point or a run, or the beginning of its id (default: the newest)")
    parser.add_argument("--yes", "-y", action="store_true", help="do not ask whether to go ahead")
    parser.add_argument("--dry-run", action="store_true", help="show what would happen, and do nothing")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--only",
        action="extend",
        nargs="+",
        default=[],
        metavar="PATH",
        help="undo only these; a folder stands for all below it",
    )
    parser.add_argument(
        "--keep", action="extend", nargs="+", default=[], metavar="PATH", help="leave these as they are"
    )
    parser.add_argument(
        "--force",
        action="extend",
        nargs="+",
        default=[],
        metavar="PATH",
        help="undo these even though they changed since",
    )
    parser.add_argument("--rest", action="store_true", help="leave what cannot be undone, and undo the rest")
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
        if not options.dry_run:
            _refuse_while_in_progress(here)
        plan = plan_undo(
            target.runs, here.tree, here.contents, scratch=here.project.folder, others=_appeared(here, target)
        )
        decision = resolve(plan, choices)
        if options.dry_run:
            return _print_plan(options, target, decision)
        agreed = _agreed(options, target, decision, choices)
        return agreed if isinstance(agreed, int) else _carry_out(options, here, target, agreed)


def _refuse_while_in_progress(here: Here) -> None:
    """Say it before anybody is asked; `undo` looks again when it takes the locks to keep. Raises UndoError."""
    with locked(here.project.folder):
        return


def _target(options: argparse.Namespace, here: Here) -> Target:
    if options.verb == "redo":
        last = here.store.next_to_redo()
        if last is None:
            raise CkptError(Fault.NOTHING_TO_REDO)
        return Target([last], [last.id], redoes=last.id)
    if getattr(options, "id", None) is None:
        point = here.store.next_to_undo()
        if point is None:
            raise CkptError(Fault.NO_POINTS, all_undone=bool(here.store.summaries(1)))
        active = [one for one in reversed(point.runs) if not here.store.is_undone(one.id)]
        return Target(active, [point.id])
    named_point, named = found(here, options.id)
    if options.verb == "undo":
        is_undo = len(named) == 1 and named[0].undoes and named[0].redoes is None
        return Target(list(reversed(named)), [options.id], redoes=named[0].id if is_undo else None)
    later = [
        one
        for one in here.store.runs_after(named[-1].id)
        if not one.undoes and not one.redoes and not here.store.is_undone(one.id)
    ]
    points = {one.point_id for one in later} - {named_point.id}
    return Target([*later, *reversed(named)], [named_point.id], later=len(points))


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
        print_json({**_planned_json(decision), **_held_json(decision), "dry_run": True})
    else:
        title = card_verbs.undo_title(options.verb, target.ids, target.later)
        print_text("\n".join([title, *card_verbs.plan_lines(decision.plan, decision)]))
    if decision.stopped:
        return EXIT_STOPPED
    return EXIT_PARTIAL if decision.kept or decision.left else EXIT_DONE


def _planned_json(decision: Decision) -> dict[str, object]:
    """What would be done, in the shape of what was done."""

    def names(*actions: str) -> list[str]:
        return sorted(os.fsdecode(one.path) for one in decision.items if one.action in actions and not one.implied)

    if decision.stopped:
        result = "stopped"
    elif decision.kept or decision.left:
        result = "partial"
    else:
        result = "restored" if decision.items else "nothing"
    return {
        "result": result,
        "restored": names(Action.RESTORE, Action.RECOVER, Action.MAKE_FOLDER, Action.CHMOD),
        "removed": names(Action.REMOVE, Action.REMOVE_FOLDER),
        "merged": names(Action.MERGE),
    }


def _held_json(decision: Decision) -> dict[str, list[dict[str, str]]]:
    def rows(held: Sequence[object]) -> list[dict[str, str]]:
        return [{"path": os.fsdecode(one.path), "reason": one.reason} for one in held]  # type: ignore[attr-defined]

    return {"kept": rows((*decision.kept, *decision.stopped)), "left": rows(decision.left)}


def _agreed(options: argparse.Namespace, target: Target, decision: Decision, choices: Choices) -> Decision | int:
    """Ask what has to be asked; gives the decision to carry out, or the exit code of one that is not."""
    asks = question.can_ask() and not options.json
    plan = decision.plan
    if decision.stopped and asks:
        answer = question.about_held(decision.stopped)
        if answer is None:
            return _cancelled()
        choices = answer.added_to(choices)
        decision = resolve(plan, choices)
    if decision.stopped:
        return _stopped(options, decision, card_verbs.stopped(decision.stopped))
    if options.yes or not decision.items:
        return decision
    if not asks:
        return _stopped(options, decision, f"ckpt: {card_verbs.NEEDS_YES}")
    doubtful = [item.path for item in decision.items if item.path in plan.by_time and not item.implied]
    lines = [card_verbs.undo_title(options.verb, target.ids, target.later), *card_verbs.plan_lines(plan, decision)]
    keep = question.about_plan(lines, doubtful)
    if keep is None:
        return _cancelled()
    if not keep:
        return decision
    kept = Choices(only=choices.only, keep=choices.keep | keep, force=choices.force - keep, rest=choices.rest)
    return resolve(plan, kept)


def _stopped(options: argparse.Namespace, decision: Decision, sentence: str) -> int:
    if options.json:
        print_json({"result": "stopped", **_nothing_done(), **_held_json(decision)})
    card.warn(sentence)
    return EXIT_STOPPED


def _cancelled() -> int:
    card.warn(f"ckpt: {card_verbs.CANCELLED}")
    return EXIT_STOPPED


def _nothing_done() -> dict[str, list[str]]:
    return {"restored": [], "removed": [], "merged": []}


def _carry_out(options: argparse.Namespace, here: Here, target: Target, decision: Decision) -> int:
    argv = [b"ckpt", *(os.fsencode(word) for word in (options.verb, *target.ids))]
    naming = Naming(new_id(), tuple(argv), here.project.top, target.redoes)
    rest = _rest_of(decision) if options.only else frozenset()
    if rest and target.redoes is None:
        decision = replace(decision, plan=replace(decision.plan, runs=tuple(map(_part_of, target.runs))))
    try:
        with question.progress(len(decision.items)) as progress:
            done = undo(decision, here.store, here.tree, here.contents, naming, progress=progress)
    except ChangedSince as changed:
        if options.json:
            held = [{"path": os.fsdecode(one.path), "reason": one.reason} for one in changed.held]
            print_json({"result": "stopped", **_nothing_done(), "kept": held, "left": []})
        card.warn(card_verbs.changed_meanwhile(changed.held))
        return EXIT_STOPPED
    if done.run_id is None and not options.only and not all(here.store.is_undone(one.id) for one in target.runs):
        _note_as_undone(here, target, naming)
    _tell(options, target, done, is_part=bool(rest))
    return EXIT_PARTIAL if done.kept or done.left else EXIT_DONE


def _rest_of(decision: Decision) -> frozenset[bytes]:
    """What `--only` has left out of the plan."""
    plan = decision.plan
    named = {one.path for one in decision.items}
    named.update(one.path for one in decision.kept)
    named.update(one.path for one in decision.left)
    whole = {one.path for one in plan.items} | {one.path for one in plan.held}
    return frozenset(whole - named)


def _part_of(whole: Run) -> Run:
    """Stands for a run of which only a part is undone: the run itself does not count as undone."""
    return Run(
        f"{whole.id}/part",
        whole.argv,
        whole.cwd,
        whole.started_ns,
        git_moved=whole.git_moved,
        background=whole.background,
    )


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


def _tell(options: argparse.Namespace, target: Target, done: Undone, *, is_part: bool) -> None:
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
        print_text(card_verbs.NOTHING_OF_ONLY if options.only else card_verbs.NOTHING_TO_UNDO)
        return
    partial_of = target.ids[0] if is_part and options.verb == "undo" else None
    print_text("\n".join(card_verbs.undone(options.verb, done, target.ids, partial_of=partial_of)))
    sys.stdout.flush()
