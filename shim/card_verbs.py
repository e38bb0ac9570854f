"""What the verbs of `ckpt` say: cards, logs, questions. A leaf, like `card`; nothing here reads or asks."""

from __future__ import annotations

import re
import time

from ckpt_run.capture.model import Coverage, State
from ckpt_run.shim import card
from ckpt_run.shim.card import counted, listed, named, plain, shown, size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from ckpt_run.capture.model import Change, Point, Run

NOTHING_TO_UNDO = "Nothing to put back: everything is as it was before the command."
NOTHING_OF_ONLY = "Nothing to put back in what --only names."
CANCELLED = "Nothing was changed."
NEEDS_YES = "Nothing was changed: there is no terminal to ask on. Add --yes to go ahead."
FORGOTTEN = "Forgotten."
SOUND = "Everything that is kept is whole."
NO_LOG = "Nothing is recorded here yet. Run a command with: ckpt-run -- COMMAND"
UNSURE_YES = "Forget all of it for good? It cannot be brought back. [y/N] "
PROBLEMS = "The store is damaged:"
NOT_WRITABLE = "it cannot be written"
UNKNOWN_LINES = "lines not known"
BINARY = "binary"
_COLOUR = re.compile("\x1b(?!\\[[0-9;]*m)")
_ACTIONS = {
    "restore": "restored",
    "recover": "recovered",
    "remove": "removed",
    "chmod": "permissions",
    "merge": "merged",
    "make_folder": "folder made again",
    "remove_folder": "folder removed",
}
_LIST_MAX = 20
_CHANGES = {
    "modified": "changed",
    "created": "created",
    "deleted": "deleted",
    "mode": "permissions",
    "type": "replaced",
}
_TITLE_MAX = 70


def title(argv: Sequence[bytes], prompt: str | None, label: str | None) -> str:
    """A point in 70 characters: the prompt of its turn, the label of its run, or the command."""
    text = prompt or label or " ".join(shown(word) for word in argv)
    text = plain(" ".join(text.split()))
    return text if len(text) <= _TITLE_MAX else text[: _TITLE_MAX - 1] + "…"


def age(time_ns: int, now_ns: int | None = None) -> str:
    """How long ago a time (nanoseconds since the epoch) was, in its largest unit."""
    seconds = max(0, ((time.time_ns() if now_ns is None else now_ns) - time_ns) // 1_000_000_000)
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{seconds // length} {unit} ago"
    return f"{seconds} s ago"


def log_rows(summaries: Sequence[Any]) -> list[tuple[str, str]]:
    """Points as (style, line) pairs, in columns: id, age, files, exit code, command."""
    cells = [_log_cells(one) for one in summaries]
    widths = [max(len(row[column]) for row in cells) for column in range(4)]
    return [
        (
            "note" if one.undone or one.is_undo else "",
            f"{row[0]:<{widths[0]}}  {row[1]:>{widths[1]}}  {row[2]:<{widths[2]}}  {row[3]:<{widths[3]}}  {row[4]}",
        )
        for one, row in zip(summaries, cells, strict=True)
    ]


def _log_cells(summary: Any) -> tuple[str, str, str, str, str]:
    left = f" ({summary.left:,} left)" if summary.left else ""
    code = "?" if summary.exit_code is None else str(summary.exit_code)
    marks = [word for word, is_so in (("undone", summary.undone), ("interrupted", summary.state == State.INTERRUPTED))
             if is_so]  # fmt: skip
    mark = f"  [{', '.join(marks)}]" if marks else ""
    label = summary.runs[0].label if summary.runs else None
    what = title(summary.argv, summary.prompt, label)
    return summary.id, age(summary.started_ns), counted(summary.changed, "path") + left, f"exit {code}", what + mark


def lines_of(counts: tuple[int, int] | str) -> str:
    """Lines added and removed; or the word that stands for them."""
    return counts if isinstance(counts, str) else f"+{counts[0]:,} -{counts[1]:,}"


def point_card(point: Point, lines: Mapping[tuple[str, bytes], tuple[int, int] | str]) -> list[tuple[str, str]]:
    """A point as (style, line) pairs: what it was, each change, the gaps apart."""
    rows = _head(point)
    done: list[str] = []
    gaps: dict[str, list[str]] = {}
    for run in point.runs:
        for change in sorted(listed(run.changes), key=lambda one: one.path):
            if change.reason is None:
                done.append(_change_line(change, lines.get((run.id, change.path), "")))
            else:
                reason = f"{card.reason(change.reason, change.numbers)}  ({change.by})"
                gaps.setdefault(reason, []).append(shown(change.path))
    rows += [("", line) for line in done]
    if gaps:
        rows += [("", ""), ("title", card.LEFT_TITLE)]
        for why, names in gaps.items():
            rows.append(("gap", f"  {named(names)}: {why}"))
    if any(run.git_moved for run in point.runs):
        rows += [("", ""), ("note", _moved(name for run in point.runs for name in run.git_moved))]
    background = [one for run in point.runs for one in run.background]
    if background:
        rows.append(("note", card.background(background)))
    return rows


def _moved(names: Iterable[str]) -> str:
    return f"The command moved Git ({named([plain(name) for name in dict.fromkeys(names)])}). {card.GIT_STAYS}"


def _head(point: Point) -> list[tuple[str, str]]:
    first, last = point.runs[0], point.runs[-1]
    rows = [("title", f"{point.id}  {title(first.argv, point.prompt, first.label)}")]
    if point.prompt is not None or len(point.runs) > 1:
        rows += [("note", f"  {run.id}  {title(run.argv, None, run.label)}") for run in point.runs]
    code = "it was interrupted" if last.exit_code is None else f"exit {last.exit_code}"
    coverage = {
        Coverage.COMPLETE: "Undo can put back everything",
        Coverage.PARTIAL: "Undo leaves some of it",
        Coverage.NONE: "Undo leaves all of it",
    }[point.coverage]
    rows.append(("note", f"{age(first.started_ns)} in {shown(first.cwd)} · {code} · {coverage}"))
    rows.append(("", ""))
    return rows


def _change_line(change: Change, lines: tuple[int, int] | str) -> str:
    name = _CHANGES[change.name]
    if card.is_folder(change):
        name = "folder " + name
    tail = f"  {lines_of(lines)}" if lines else ""
    if change.name == "mode" and None not in (change.before.mode, change.after.mode):
        tail = f"  {change.before.mode:04o} → {change.after.mode:04o}"
    return f"  {name:<12} {shown(change.path)}{tail}  ({change.by})"


def plan_lines(plan: Any, decision: Any) -> list[str]:
    """What an undo will do to each file; long lists end with `and N more`."""
    lines = _cut([f"  {_ACTIONS[item.action]:<18} {shown(item.path)}" for item in _shown_items(decision.items)])
    lines += _cut([f"  {'stays':<18} {shown(one.path)}: {why(one)}" for one in (*decision.kept, *decision.stopped)])
    lines += _cut([f"  {'Undo leaves':<18} {shown(one.path)}: {why(one)}" for one in decision.left])
    if plan.git_moved:
        lines.append(_moved(plan.git_moved))
    if plan.background:
        lines.append(card.background(plan.background))
    return lines


def _shown_items(items: Iterable[Any]) -> list[Any]:
    """The items worth a line: not a folder that only comes or goes with what is in it."""
    all_items = sorted(items, key=lambda item: item.path)
    folders = {item.path.rpartition(b"/")[0] for item in all_items}
    return [item for item in all_items if not (item.action.endswith("folder") and item.path in folders)]


def _cut(lines: list[str]) -> list[str]:
    rest = len(lines) - _LIST_MAX
    return lines if rest <= 0 else [*lines[:_LIST_MAX], f"  and {rest:,} more"]


def why(one: Any) -> str:
    """Why a path is held or left."""
    return card.reason(one.reason, one.numbers)


def undo_title(verb: str, points: Sequence[str], later: int) -> str:
    """What is about to be undone, or redone."""
    more = f", and {counted(later, 'later point')} with it" if later else ""
    what = "Take back the undo" if verb == "redo" else "Undo"
    return f"{what} {named([plain(one) for one in points])}{more}:"


def by_time_line(paths: Sequence[bytes]) -> str:
    """Files of which nobody can say who changed them."""
    return f"Changed while the command ran, and nobody reported by whom: {named([shown(path) for path in paths])}"


PLAIN_QUESTION = "Go ahead? [y] restore all  [c] keep the ones I edited…  [n] no (default): "
PLAIN_QUESTION_SHORT = "Go ahead? [y] yes  [n] no (default): "
HELD_TITLE = "These changed since, so Undo stopped to ask:"
HELD_QUESTION = (
    "[k] keep my changes in these (default)  [u] undo these anyway  [r] undo only the rest  [n] cancel everything: "
)
CHECKLIST_TITLE = "Which of these did you edit? They stay as they are."
CHECKLIST_QUESTION = "Numbers (such as 1 3-5), or Enter for none: "


def checklist(paths: Sequence[bytes]) -> list[str]:
    """The files to choose from, numbered from 1."""
    return [f"  {number:>3}  {shown(path)}" for number, path in enumerate(paths, 1)]


def held_lines(held: Sequence[Any]) -> list[str]:
    """The files that stopped an undo, each with its reason."""
    return _cut([f"  {shown(one.path)}: {why(one)}" for one in held])


def stopped(held: Sequence[Any]) -> str:
    """An undo that needs a decision, where nobody can be asked."""
    return "\n".join(
        [
            "ckpt: Undo stopped, nothing was changed. These files changed since:",
            *held_lines(held),
            "Choose with --keep PATH, --force PATH, or --rest to undo the others.",
        ]
    )


def changed_meanwhile(held: Sequence[Any]) -> str:
    """Files that changed between the question and the undo."""
    names = named([shown(one.path) for one in held])
    return f"ckpt: Undo stopped, nothing was changed: {names} changed meanwhile. Look again with: ckpt undo"


def undone(verb: str, result: Any, ids: Sequence[str], *, partial_of: str | None) -> list[str]:
    """What an undo, rewind or redo did, in a few lines."""
    what = "Taken back the undo" if verb == "redo" else "Undone"
    parts = []
    for word, paths in (
        ("restored", result.restored),
        ("recovered", result.recovered),
        ("removed", result.removed),
        ("merged", result.merged),
        ("permissions put back", result.chmod),
    ):
        if paths:
            parts.append(f"{len(_without_their_folders(paths)):,} {word}")
    lines = [f"{what} {named([plain(one) for one in ids])}: {', '.join(parts) if parts else 'nothing to put back'}."]
    if result.kept:
        lines += ["Left as you have it:", *held_lines(result.kept)]
    if result.left:
        lines += [card.LEFT_TITLE + ":", *held_lines(result.left)]
    if result.git_moved:
        lines.append(f"Your files are put back; {card.GIT_STAYS}")
    if result.background:
        lines.append(card.background(result.background))
    if partial_of is not None:
        lines.append(f"The rest of it is undone with: ckpt undo {plain(partial_of)}")
    return lines


def _without_their_folders(paths: Sequence[bytes]) -> list[bytes]:
    """The paths without folders that only came or went with what is in them."""
    folders = {path[:end] for path in paths for end in range(len(path)) if path[end] == ord("/")}
    return [path for path in paths if path not in folders]


def recovered(one: Any) -> str:
    """How an undo that a crash had left open was ended."""
    words = {
        "forward": "was finished: all of its files are put back",
        "back": "was taken back: everything is as it was before it",
        "open": "could not be ended yet; `ckpt recover` tries again",
    }
    text = f"The undo {plain(one.undo_id)} that was cut off {words[one.result]}."
    for kept in one.kept:
        text += f" Somebody wrote {shown(kept.path)} meanwhile; the bytes meant for it are in {shown(kept.rescue)}."
    for failure in one.failures:
        text += f" {shown(failure.path)}: {plain(failure.cause)}."
    return text


def nothing_open() -> str:
    """No undo and no run is open."""
    return "Nothing was left open."


def closed_run(run: Run) -> str:
    """A run whose wrapper died."""
    return f"The run {run.id} was cut off; what it changed until now is recorded as interrupted."


def status_lines(top: bytes, folder: bytes, usage: Any, open_undos: int) -> list[str]:
    """What is kept of a project, and the limits."""
    share = 100 * usage.bytes // max(1, usage.bytes_max)
    lines = [
        f"project  {shown(top)}",
        f"store    {shown(folder)}",
        f"points   {usage.points:,} of {usage.points_max:,} ({counted(usage.runs, 'run')})",
        f"bytes    {size(usage.bytes)} of {size(usage.bytes_max)} ({share} %), {size(usage.file_bytes)} on disk",
    ]
    if open_undos:
        lines.append(f"open     {counted(open_undos, 'undo')} cut off: ckpt recover")
    return lines


def problem(one: Any) -> str:
    """One thing that is wrong in the store."""
    facts = ", ".join(
        f"{name} {plain(str(getattr(one, name)))}" for name in one.__slots__ if getattr(one, name) is not None
    )
    return f"  {facts}"


def pruned(steps: Sequence[Any]) -> str:
    """What a prune or purge forgot, in one step or several."""
    points, changes, held = (sum(getattr(one, name) for one in steps) for name in ("points", "changes", "bytes"))
    return (
        f"Forgotten: {counted(points, 'point')}, {counted(changes, 'change')}, {size(held)};"
        f" the store now takes {size(steps[-1].file_bytes_after)} on disk."
    )


def part_of_point(run_id: str, point_id: str) -> str:
    """A run that cannot be forgotten without the others of its turn."""
    return f"{plain(run_id)} is one command of the point {point_id}, which is forgotten whole: ckpt purge {point_id}"


def setting_lines(name: str, value: object, setting: Any) -> list[str]:
    """A setting with its value, what it takes, and its sentence."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    default = str(setting.default).lower() if isinstance(setting.default, bool) else str(setting.default)
    return [f"{name} = {text}", f"    {setting.sentence} It takes {setting.allowed}; the default is {default}."]


def doctor_line(is_fine: bool | None, text: str) -> str:  # noqa: FBT001  # three-valued: fine, not fine, for information
    """One finding of the doctor."""
    return f"{'  ' if is_fine is None else '✓ ' if is_fine else '✗ '}{text}"


def doctor_git(version: str, *, is_new_enough: bool) -> str:
    """Git's version."""
    return f"Git {plain(version)}" + ("" if is_new_enough else ": version 2.30 or newer is needed")


def doctor_store(folder: bytes, problem_text: str | None) -> str:
    """Where the store is, and whether it can be used."""
    return f"store at {shown(folder)}" + (f": {problem_text}" if problem_text else "")


def doctor_command(mine: bytes | None, first: bytes | None) -> str:
    """Which `ckpt` stands first on PATH."""
    if first is None:
        return "no `ckpt` on PATH: call it by its full name, or put its folder on PATH"
    if mine == first:
        return f"`ckpt` on PATH is this one, {shown(first)}"
    return f"another `ckpt` stands first on PATH: {shown(first)}. An isolated install (pipx install ckpt-run) helps"


def doctor_witness(verdict: Any, trace: str) -> str:
    """Whether the kernel can tell which process wrote a file, and whether it is asked."""
    by_time = "who wrote a file while a command ran is known by time only, and Undo asks about such files"
    if not verdict.works:
        return f"trace: {card.NOT_TRACED.get(verdict.why or '', 'it failed')}: {by_time}"
    if trace == "never":
        return f"trace: the kernel could tell, and is not asked (the setting trace): {by_time}"
    return "trace: the kernel tells which process wrote a file"


def no_diff(change: Change) -> str:
    """A change whose bytes are not kept on both sides."""
    reason = card.reason(change.reason, change.numbers) if change.reason else "the bytes on one side are not kept"
    return f"ckpt: no diff of {shown(change.path)}: {reason}"


def stat_line(path: bytes, lines: tuple[int, int] | str, by: str) -> str:
    """One file of `diff --stat`, with the witness that spoke."""
    return f"  {shown(path)}  {lines_of(lines)}  ({by})"


def only_colours(text: str) -> str:
    """The text with every escape sequence but those of colours made visible."""
    return _COLOUR.sub("\\\\x1b", text)
