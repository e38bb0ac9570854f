"""Every sentence a person reads that does not need a terminal's width: faults, reasons, notes, names.

A leaf: it knows the words of the capture and nothing else, reads no file, and imports nothing heavy, because a run
that has something to say waits for it. It promises that no name from outside can forge a line or reach the terminal
as a control character.
"""

from __future__ import annotations

import os
import sys

from ckpt_run.capture.errors import CkptError, Fault
from ckpt_run.capture.model import Change, Kind, Run
from ckpt_run.capture.reasons import Reason

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

NAMES_MAX = 5
"""How many names a sentence holds before it says how many more there are."""
GIT_STAYS = "Git's commits, branches, stashes and staging are left as they are."
LEFT_TITLE = "Changed by a command — Undo leaves it"
UNITS = ("bytes", "KiB", "MiB", "GiB")
INTERRUPTED = "Interrupted."

# The words in braces: {at} is " at PATH" or nothing, {why} is " (CAUSE)" or nothing, the rest are facts by name.
FAULTS: dict[str, str] = {
    Fault.NOT_A_PROJECT: "No Git project was found{at}. Go into one, or name its folder with --project.",
    Fault.BARE_REPOSITORY: "The repository{at} has no worktree here, so there are no files to look at or put back.",
    Fault.UNSAFE_REPOSITORY: "Git does not trust the repository{at}, because it belongs to somebody else{why}."
    " If you do, run: git config --global --add safe.directory FOLDER",
    Fault.CORRUPT_REPOSITORY: "Git cannot read the repository{at}{why}. Look at it with: git fsck",
    Fault.CORRUPT_INDEX: "Git cannot read the repository's index{at}{why}."
    " `git fsck` says more; removing .git/index and `git reset` make it anew.",
    Fault.GIT_MISSING: "Git could not be started{why}. Install it, or put it on PATH.",
    Fault.GIT_TOO_OLD: "This Git is too old{why}: version 2.30 or newer is needed.",
    Fault.GIT_FAILED: "Git could not answer{at}{why}.",
    Fault.STORE_INSIDE_PROJECT: "The store{at} lies inside the project, where a command could take both."
    " Point CKPT_HOME to a folder outside.",
    Fault.STORE_NOT_WRITABLE: "The store{at} cannot be written{why}. See who owns it, or point CKPT_HOME elsewhere.",
    Fault.STORE_FULL: "There is no room left for the store{at}{why}."
    " Make room on the disk, or forget old points with: ckpt prune",
    Fault.STORE_DAMAGED: "The store{at} is damaged{why}, so it was not used."
    " `ckpt verify` says where; `ckpt purge --all` begins a new one.",
    Fault.STORE_NEWER: "The store{at} was written by a newer ckpt-run (format {format}, this one knows {known})."
    " Update ckpt-run to read it.",
    Fault.STORE_NOT_PRIVATE: "The store{at} is not yours alone, so it was not used."
    " Make it private with: chmod -R go= FOLDER, or point CKPT_HOME elsewhere.",
    Fault.COPY_FAILED: "Uncommitted work could not be copied{at}{why}.",
    Fault.UNKNOWN_ID: "No point or run is called {id}. `ckpt log` lists them.",
    Fault.AMBIGUOUS_ID: "Several points or runs begin with {id}: {candidates}. Give more of it.",
    Fault.OTHER_PROJECT_ID: "{id} belongs to another project, {top}. Go there, or add: --project FOLDER",
    Fault.NO_POINTS: "Nothing is recorded in this project that could be undone."
    " Run a command that changes files with: ckpt-run -- COMMAND",
    Fault.NOTHING_TO_REDO: "There is no undo that could be taken back.",
    Fault.RUN_IN_PROGRESS: "A wrapped command is still running in this project. Wait for its end, or end it first.",
    Fault.UNDO_IN_PROGRESS: "Another undo is in progress in this project. Wait for its end, or run: ckpt recover",
    Fault.COULD_NOT_WRITE: "Undo stopped: couldn't write {name}{why}."
    " Nothing was changed, and the recovery point was kept.",
    Fault.ROLL_BACK_FAILED: "Undo stopped half way, and not everything could be put back as it was before{why}."
    "{standing} Run `ckpt recover` when the cause is gone.",
    Fault.READ_ONLY_PROJECT: "Undo stopped: {name} is on a file system that is read-only{why}."
    " Nothing was changed, and the recovery point was kept.",
    Fault.BAD_SETTING: "{setting}",
    Fault.PATH_OUTSIDE_PROJECT: "{name} is not a path inside this project.",
}

NOTHING_LEFT = (
    "Nothing is left to undo: everything recorded here is undone already. `ckpt redo` takes the last undo back."
)

REASONS: dict[str, str] = {
    Reason.TOO_LARGE: "too large to copy before the command: {size_bytes}, the limit is {limit_bytes}",
    Reason.TOO_MANY: "more than {limit_files} files to copy before the command",
    Reason.BUDGET: "no room left for its copy: the limit is {limit_bytes} a project",
    Reason.CONVERTED: "Git converts it ({attribute}), so its exact bytes before are not known",
    Reason.FLAGGED: "Git was told not to look at it ({flag}), so its bytes before are not known",
    Reason.UNREADABLE: "it could not be read ({cause})",
    Reason.CHANGED_WHILE_READ: "it kept changing while it was read",
    Reason.SPECIAL_FILE: "a FIFO, socket or device is never opened",
    Reason.IGNORED_FOLDER: "it is in a folder that Git ignores, which is not copied",
    Reason.IGNORED_LEFT_OUT: "ignored by Git, and such files ({pattern}) are not copied",
    Reason.MAYBE_THERE_BEFORE: "it may have been there before the command, so it is not removed",
    Reason.MOVED_IN: "it is older than the command, and was moved here from a place that is not copied",
    Reason.BLOB_LOST: "Git no longer has its bytes before (blob {oid})",
    Reason.NESTED_REPOSITORY: "it belongs to another repository inside this one",
    Reason.GIT_INTERNAL: "it is Git's own, which Undo never writes",
    Reason.PERMISSIONS_UNKNOWN: "its permissions before are not known",
    Reason.OWNER: "its owner changed, which Undo does not set",
    Reason.GIT_BLIND: "Git could not say what was there before ({cause})",
    Reason.OVERLAP: "you changed the same lines since",
    Reason.BINARY_CHANGED_SINCE: "it changed since, and is not text that could be merged",
    Reason.LARGE_CHANGED_SINCE: "it changed since, and is too large to merge: {size_bytes}, the limit is"
    " {limit_bytes}",
    Reason.LINK_CHANGED_SINCE: "the link changed since",
    Reason.TYPE_CHANGED_SINCE: "something of another kind stands there since",
    Reason.DELETED_SINCE: "it was deleted since",
    Reason.PERMISSIONS_CHANGED_SINCE: "its permissions changed since",
    Reason.CREATED_AND_EDITED: "the command created it, and it was edited since",
    Reason.CREATED_SINCE: "something else was put there since",
    Reason.RENAMED_SINCE: "it was renamed since, to {to}",
    Reason.CHANGED_SINCE: "it changed since",
    Reason.PARENT_CHANGED_SINCE: "the folder it was in is something else since",
    Reason.FOLDER_NOT_EMPTY: "the folder still holds other files",
    Reason.UNREADABLE_NOW: "it cannot be read now ({cause})",
    Reason.BYTES_LOST: "its bytes before are no longer kept",
    Reason.ASKED_TO_KEEP: "you asked to keep it",
}


def shown(name: bytes | str) -> str:
    """The name as a person may see it: as it is, or quoted with escapes where it holds what cannot be printed."""
    text = name.decode("utf-8", "surrogateescape") if isinstance(name, bytes) else name
    if text.isprintable() and text == text.strip() and text:
        return text
    return '"' + "".join(_escaped(letter) for letter in text) + '"'


def _escaped(letter: str) -> str:
    if letter in '"\\':
        return "\\" + letter
    if letter.isprintable():
        return letter
    named = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(letter)
    if named:
        return named
    code = ord(letter)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is not UTF-8 (PEP 383)
        return f"\\x{code - 0xDC00:02x}"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def plain(text: str) -> str:
    """Foreign words inside a sentence: what cannot be printed is escaped, nothing is quoted."""
    if text.isprintable():
        return text
    return "".join(letter if letter in '"\\' else _escaped(letter) for letter in text)


def counted(number: int, noun: str) -> str:
    """The number with its noun: `1 file`, `2 files`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def size(number: int) -> str:
    """A size in bytes for people: `5 MiB`, `1.5 KiB`."""
    value, unit = float(number), 0
    while value >= 1024 and unit < len(UNITS) - 1:
        value, unit = value / 1024, unit + 1
    if unit == 0:
        return "1 byte" if number == 1 else f"{number} bytes"
    return f"{value:.1f}".removesuffix(".0") + " " + UNITS[unit]


def named(names: Sequence[str], most: int = NAMES_MAX) -> str:
    """The names in one line: five, then `and N more`."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest:,} more" if rest > 0 else "")


def reason(name: str, numbers: Mapping[str, int | str]) -> str:
    """Say in words why Undo leaves, keeps or refuses a path; a reason of a newer store by its name."""
    sentence = REASONS.get(name)
    if sentence is None:
        return plain(name.replace("_", " "))
    facts = _Facts()
    for key, value in numbers.items():
        facts[key] = size(value) if key.endswith("_bytes") and isinstance(value, int) else plain(str(value))
    if "to" in numbers:
        facts["to"] = shown(str(numbers["to"]))
    return sentence.format_map(facts).replace(" ()", "")


class _Facts(dict[str, str]):
    """What a sentence's braces stand for; a fact that is not known is left out."""

    def __missing__(self, key: str) -> str:
        return ""


def fault(error: CkptError) -> str:
    """Say in one sentence or two what went wrong, where, and what to do."""
    facts = _Facts({key: plain(str(value)) for key, value in error.facts.items()})
    path = shown(error.path) if error.path else ""
    facts["at"] = f" at {path}" if path else ""
    facts["name"] = path or "a file"
    facts["why"] = f" ({plain(error.cause)})" if error.cause else ""
    candidates = error.facts.get("candidates")
    if isinstance(candidates, list):
        facts["candidates"] = named([plain(str(one)) for one in candidates])
    for key in ("top", "command"):
        value = error.facts.get(key)
        if isinstance(value, bytes):
            facts[key] = shown(value)
    if error.fault == Fault.NO_POINTS and error.facts.get("all_undone"):
        return NOTHING_LEFT
    if error.fault == Fault.BAD_SETTING:
        facts["setting"] = _setting(error)
    if error.fault == Fault.ROLL_BACK_FAILED:
        facts["standing"] = _standing(error)
    return FAULTS[error.fault].format_map(facts)


def _setting(error: CkptError) -> str:
    """A setting at fault: unknown, of a bad value, or a file that cannot be read."""
    file = error.facts.get("file")
    where = f" in {shown(file)}" if isinstance(file, bytes) else ""
    key, value = error.facts.get("key"), error.facts.get("value")
    if key is None:
        return f"The settings{where} cannot be read" + (f" ({plain(error.cause)})." if error.cause else ".")
    if "allowed" not in error.facts:
        nearest = error.facts.get("nearest")
        hint = f" Did you mean {plain(str(nearest))}?" if nearest else " `ckpt config` lists them."
        return f"There is no setting {shown(str(key))}{where}.{hint}"
    allowed = plain(str(error.facts["allowed"]))
    return f"{shown(str(value))} is not a value of {plain(str(key))}{where}: it takes {allowed}."


def _standing(error: CkptError) -> str:
    """Which files stand how after a roll-back that failed, and where kept bytes are."""
    how = {"before": "as before the undo", "after": "as the undo wanted it", "between": "neither whole"}
    words = []
    for one in _each(error.facts.get("failures")):
        cause = plain(str(getattr(one, "cause", "")))
        words.append(f"{shown(one.path)} stands {how.get(one.stands, one.stands)} ({cause})")
    kept = _each(error.facts.get("kept"))
    words += [f"the bytes meant for {shown(one.path)} are in {shown(one.rescue)}" for one in kept]
    return f" {'; '.join(words)}." if words else ""


def _each(value: object) -> Iterable[Any]:
    return value if isinstance(value, tuple | list) else ()


def listed(changes: Iterable[Change]) -> list[Change]:
    """The changes worth a line: a folder's only when no other listed path lies below it."""
    all_changes = list(changes)
    above: set[bytes] = set()
    for change in all_changes:
        path = change.path
        while b"/" in path:
            path = path.rpartition(b"/")[0]
            above.add(path)
    return [change for change in all_changes if not (is_folder(change) and change.path in above)]


def is_folder(change: Change) -> bool:
    """Say whether the change is one of a folder alone: made, gone, or its permissions."""
    return {change.before.kind, change.after.kind} <= {Kind.DIRECTORY, Kind.ABSENT}


def note(run: Run) -> str:
    """The one line after a run: `ckpt: 3 files changed (1 Undo leaves) · ckpt undo`, and what still runs."""
    changes = listed(run.changes)
    left = sum(1 for change in changes if change.reason is not None)
    lines = []
    if changes:
        some = f" ({left:,} Undo leaves)" if left else ""
        verb = "show" if left == len(changes) else "undo"
        lines.append(f"ckpt: {counted(len(changes), 'file')} changed{some} · ckpt {verb}")
    if run.background:
        lines.append("ckpt: " + background(run.background))
    return "\n".join(lines)


def background(processes: Sequence[tuple[int, str]]) -> str:
    """What of the command goes on after its end."""
    names = named([f"{plain(name)} ({pid})" for pid, name in processes])
    return f"still running in the background: {names}; what they write from now on is not the command's"


def warnings(run: Run) -> str:
    """What must be said where nobody watches: gaps and what still runs; empty when there is neither."""
    changes = listed(run.changes)
    gaps = [shown(change.path) for change in changes if change.reason is not None]
    lines = []
    if gaps:
        lines.append(f"ckpt: Undo leaves {len(gaps):,} of {counted(len(changes), 'changed file')}: {named(gaps)}"
                     f" · ckpt show {run.id}")  # fmt: skip
    if run.background:
        lines.append("ckpt: " + background(run.background))
    return "\n".join(lines)


def not_saved(error: CkptError, *, runs_anyway: bool) -> str:
    """Why a run could not be made safe, and what that means for the command."""
    then = "The command runs, and is not recorded." if runs_anyway else "The command was not started."
    return f"ckpt-run: {fault(error)} {then}"


def not_recorded(error: Exception, folder: bytes) -> str:
    """The command ended, and its record could not be written; the copies are safe."""
    why = fault(error) if isinstance(error, CkptError) else plain(str(error))
    return (
        f"ckpt-run: What the command changed could not be recorded: {why}"
        f" The copies are kept in {shown(folder)}; the next ckpt command tries again."
    )


NOT_TRACED = {
    "not_linux": "only Linux can",
    "machine": "not on this kind of machine",
    "kernel": "this kernel cannot",
    "nested": "another program watches the command already",
    "forbidden": "the kernel refuses it here",
    "resources": "there was no room for it",
}


def not_traced(why: str | None) -> str:
    """The run was to be traced and was not."""
    cause = NOT_TRACED.get(why or "", "it failed")
    return f"ckpt: not traced ({cause}): which process wrote a file is known by time only"


def powerless(programs: Sequence[bytes]) -> str:
    """Programs that the trace left without the privileges they are installed with."""
    names = named([shown(name) for name in dict.fromkeys(programs)])
    return f"ckpt: while traced, these run without their privileges: {names} · ckpt-run --trace never"


def not_started(ended: object) -> str:
    """Why the command could not be started, in a shell's words; `ended` is the `Ended` of the process."""
    path, number = getattr(ended, "path", None), getattr(ended, "errno", None)
    if getattr(ended, "exit_code", 0) == 127 and b"/" not in (path or b"/"):
        why = "command not found"
    else:
        why = os.strerror(number) if number else "it could not be started"
    return f"ckpt-run: {shown(path or b'')}: {why}"


def run_usage(word: str | None) -> str:
    """What is wrong with the words before the command."""
    wrong = "no command was given" if word is None else f"unknown option, or one without its value: {shown(word)}"
    return f"ckpt-run: {wrong}\n{_RUN_USAGE}\nckpt-run --help says more."


_RUN_USAGE = "usage: ckpt-run [OPTION…] -- COMMAND [ARG…]"
_RUN_HELP = """
Runs the command as it would run without it, and records what it changes in this Git project, so that
`ckpt undo` can put it back.

  --note auto|always|never   the line on stderr after a run that changed something (auto: on a terminal)
  --on-error refuse|run      when the state before cannot be saved: exit with 125, or run unrecorded
  --trace auto|always|never  ask the kernel which process wrote a file, and copy what has no other copy just before
                             it changes; costs some 25 ms (auto: where that changes nothing else; default: never)
  --label TEXT               a name for this run in `ckpt log`
  --session ID, --turn ID    group the runs of one conversation, and of one answer in it
  --version, --help

The exit code is the command's own; 128+n when signal n ended it; 127 not found; 126 not executable; 125 when
ckpt-run could not save what it needs and did not start the command."""


def run_help() -> str:
    """What `ckpt-run --help` says."""
    return _RUN_USAGE + "\n" + _RUN_HELP


def version() -> str:
    """Name and version of this distribution."""
    from importlib.metadata import version as version_of

    return f"ckpt-run {version_of('ckpt-run')}"


def tell(text: str) -> None:
    """Write a text to stdout."""
    sys.stdout.write(text + "\n")


def warn(text: str) -> None:
    """Write a text to stderr; where nobody can hear it, it is lost."""
    try:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):  # closed, or none at all
        return
