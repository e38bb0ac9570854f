"""Random trains of commands, the user's own work between them, undo, undo by id, rewind and redo."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from pathlib import Path

import hypothesis
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from .machine import Done, fold, lost_words, user_words
from .stage import Ended, Stage, ancestors
from .tree import Tree, changed, git_state, rewritten, snapshot
from .variants import Rooms

LONG = bool(os.environ.get("CKPT_LONG"))
SETTINGS = hypothesis.settings(
    max_examples=150 if LONG else 12,
    stateful_step_count=30 if LONG else 12,
    derandomize=not LONG,
    database=None,
    deadline=None,
    suppress_health_check=list(hypothesis.HealthCheck),
)

PATHS = ("a.txt", "b.txt", "folder/c.txt", "folder/d.txt", "new/deep/e.txt", "untracked.txt", "own.db", "-od d\n")
MODES = ("600", "644", "755")
GIT_STEPS = (
    "git checkout -q .",
    "git stash -q -u",
    "git stash pop -q",
    "git reset -q --hard",
    "git add -A",
    "git add -A; git commit -qm step",
    "git checkout -qf side",
    "git checkout -qf main",
    "git clean -qfd",
    "rm -rf ./* .gitignore",
)


def _steps() -> st.SearchStrategy[str]:
    """Build one line of shell; `%` is where the writer's own mark goes."""
    path = st.sampled_from(PATHS).map(lambda name: shlex.quote("./" + name))
    line = st.integers(1, 30)
    return st.one_of(
        st.builds("mkdir -p $(dirname {0} | head -1); echo % > {0}".format, path),
        st.builds("echo % >> {0}".format, path),
        st.builds("sed -i '{1}s/.*/%/' {0}".format, path, line),
        st.builds("rm -rf {0}".format, path),
        st.builds("mv {0} {1}".format, path, path),
        st.builds("cp {0} {1}".format, path, path),
        st.builds("chmod {1} {0}".format, path, st.sampled_from(MODES)),
        st.builds("rm -rf {0}; ln -s a.txt {0}".format, path),
        st.builds("rm -rf {0}; mkdir {0}; echo % > {0}/inside".format, path),
        st.sampled_from(("rm -rf folder", "mkdir -p hollow/inner", "rmdir hollow/inner", "chmod 700 folder")),
        st.sampled_from(GIT_STEPS),
    )


class UndoMachine(RuleBasedStateMachine):
    """One project lived in: who did what, and what each undo must make of it."""

    def __init__(self, rooms: Rooms, base: Path) -> None:
        """Open a fresh project with a store of its own."""
        super().__init__()
        self._stage = Stage(rooms, base, "small")
        self._home = {"CKPT_HOME": str(base / "ckpt")}
        self._runs: list[Done] = []
        self._undone: set[str] = set()
        self._unclear: set[str] = set()
        self._seen: set[str] = set()
        self._redo: tuple[Tree, list[Done]] | None = None
        self._count = 0

    @rule(steps=st.lists(_steps(), min_size=1, max_size=3))
    def a_command_runs(self, steps: list[str]) -> None:
        command = self._marked("; ".join(steps), "command")
        before = snapshot(self._stage.top)
        ended = self._run(str(self._stage.tools / "ckpt-run"), "--", "sh", "-c", command)
        assert ended.code != 125, ended
        after = snapshot(self._stage.top)
        fresh = self._fresh_ids()
        assert len(fresh) == 1 or (not fresh and before.entries == after.entries), (command, fresh)
        if fresh:
            self._runs.append(Done(fresh[0], before, after, user_words(self._stage.top)))
        self._redo = None

    @rule(step=_steps())
    def the_user_works(self, step: str) -> None:
        self._run("sh", "-c", self._marked(step, "user"))
        self._redo = None

    @precondition(lambda self: self._open())
    @rule(data=st.data())
    def the_user_works_where_a_command_did(self, data: st.DataObject) -> None:
        paths = sorted(data.draw(st.sampled_from(self._open())).paths) or [b"a.txt"]
        path = shlex.quote("./" + os.fsdecode(data.draw(st.sampled_from(paths))))
        step = data.draw(st.sampled_from(("sed -i '2s/.*/%/' {}", "echo % >> {}", "rm -rf {}", "chmod 640 {}")))
        self._run("sh", "-c", self._marked(step.format(path), "user"))
        self._redo = None

    @precondition(lambda self: self._open())
    @rule()
    def the_newest_is_undone(self) -> None:
        run = self._open()[-1]
        self._undo([run], "undo", *([run.id] if self._unclear else []))

    @precondition(lambda self: len(self._open()) > 1)
    @rule(data=st.data())
    def one_in_the_middle_is_undone(self, data: st.DataObject) -> None:
        run = data.draw(st.sampled_from(self._open()[:-1]))
        self._undo([run], "undo", run.id)

    @precondition(lambda self: len(self._open()) > 1 and not self._unclear)
    @rule(data=st.data())
    def everything_from_one_on_is_undone(self, data: st.DataObject) -> None:
        runs = self._open()
        first = data.draw(st.integers(0, len(runs) - 2))
        self._undo(runs[first:], "rewind", runs[first].id)

    @precondition(lambda self: self._redo)
    @rule()
    def the_undo_is_taken_back(self) -> None:
        assert self._redo is not None
        wanted, runs = self._redo
        now, git_before = snapshot(self._stage.top), git_state(self._stage.top)
        redone = self._ckpt("redo", "--yes")
        final = snapshot(self._stage.top)
        assert redone.code == 0, redone
        assert changed(wanted, final) == set(), redone
        assert rewritten(now, final) == set(), redone
        assert git_state(self._stage.top) == git_before
        self._undone -= {run.id for run in runs}
        self._fresh_ids()
        self._redo = None

    def _open(self) -> list[Done]:
        """Return the runs that can be undone, oldest first."""
        return [run for run in self._runs if run.id not in self._undone | self._unclear]

    def _undo(self, runs: list[Done], *words: str) -> None:
        now, now_words, git_before = (
            snapshot(self._stage.top),
            user_words(self._stage.top),
            git_state(self._stage.top),
        )
        undone = self._ckpt(*words, "--yes", "--json")
        final = snapshot(self._stage.top)
        assert git_state(self._stage.top) == git_before, undone
        wanted, certain = fold(now.entries, reversed(runs))
        others = {path for path in rewritten(now, final) if wanted.get(path) == now.entries[path]}
        assert others == set(), undone
        if certain:
            assert changed(Tree(wanted, {}), final) == set(), (words, undone)
            assert undone.code == 0 or (undone.code == 1 and wanted == now.entries), (words, undone)
        else:
            self._with_manners(runs, now, final, undone)
            lost = lost_words(now_words, user_words(self._stage.top), runs)
            assert lost == {}, (words, lost, undone)
        self._remember(runs, now, undone, certain=certain)

    def _with_manners(self, runs: list[Done], now: Tree, final: Tree, undone: Ended) -> None:
        """Somebody wrote since: merged, kept and said so, or refused with nothing written."""
        assert undone.code in (0, 3, 4), undone
        if undone.code == 3:
            assert final == now, undone
        theirs = set().union(*(run.paths for run in runs))
        parents = {folder for path in theirs for folder in ancestors(path)}
        assert changed(now, final) <= theirs | parents, undone
        told = undone.json
        silent = undone.code == 4 and not (told["kept"] or told["left"])
        assert not silent, undone

    def _remember(self, runs: list[Done], now: Tree, undone: Ended, *, certain: bool) -> None:
        ids = {run.id for run in runs}
        if undone.code == 0 or certain:
            self._undone |= ids
        elif undone.code == 4:
            self._unclear |= ids
        recorded = self._fresh_ids()
        self._redo = (now, runs) if undone.code == 0 and recorded else None

    def _fresh_ids(self) -> list[str]:
        """Return the ids that the log shows for the first time."""
        ids = [run["id"] for run in self._ckpt("log", "--json").json["runs"]]
        fresh = [run_id for run_id in ids if run_id not in self._seen]
        self._seen.update(fresh)
        return fresh

    def _marked(self, step: str, who: str) -> str:
        self._count += 1
        return step.replace("%", f"{who}-{self._count}")

    def _ckpt(self, *words: str) -> Ended:
        return self._run(str(self._stage.tools / "ckpt"), *words)

    def _run(self, *argv: str) -> Ended:
        return self._stage.run(argv, self._home)


def test_any_train_of_steps_can_be_taken_back(rooms: Rooms, tmp_path: Path) -> None:
    made: list[Path] = []

    def machine() -> UndoMachine:
        made.append(tmp_path / str(len(made)))
        return UndoMachine(rooms, made[-1])

    run: Callable[..., None] = run_state_machine_as_test
    run(machine, settings=SETTINGS)
    assert made
