"""Killed at any instant, or many at once: what the store confirmed is there, whole."""

from __future__ import annotations

import os
import random
import subprocess
import sys

import pytest

from ckpt_run.capture.model import Change
from ckpt_run.capture.store import Store, open_store

from .records import SOURCE, file, held, ids, record, rewrite, run_of

RECORDS = """
import hashlib, os, sys
from ckpt_run.capture.model import Change, Entry, Kind, Run
from ckpt_run.capture.store import open_store

def entry(data):
    return Entry(Kind.FILE, mode=0o644, size=len(data), digest=hashlib.blake2b(data, digest_size=32).digest())

folder, name, count = os.fsencode(sys.argv[1]), sys.argv[2], int(sys.argv[3])
os.write(1, b"ready\\n")
sys.stdin.read(1)
for number in range(count):
    with open_store(folder, create=True, points_max=200) as store:
        data = [b"%s %d %d " % (name.encode(), number, each) * 3000 for each in range(4)]
        changes = [Change(b"f%d" % each, entry(data[each]), entry(b"")) for each in range(4)]
        run = Run(f"{name}-{number}", [b"x"], b"/", number, changes=changes)
        store.record_run(run, {each.before.digest: some for each, some in zip(changes, data)})
        os.write(1, b"%d\\n" % number)
"""


def recorder(folder: bytes, name: str, count: int) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-c", RECORDS, os.fsdecode(folder), name, str(count)]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    process = subprocess.Popen(words, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


def test_two_processes_record_at_once_and_both_succeed(folder: bytes) -> None:
    processes = [recorder(folder, name, 50) for name in ("one", "two")]
    ends = []
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(b"g")
        process.stdin.flush()
    for process in processes:
        process.communicate()
        ends.append(process.returncode)
    assert ends == [0, 0]
    with open_store(folder, create=False) as store:
        recorded = [point.id for point in store.summaries()]
        assert sorted(recorded) == sorted(f"{name}-{number}" for name in ("one", "two") for number in range(50))
        assert store.verify() == []
    assert os.listdir(folder) == [b"store.db"]


@pytest.mark.parametrize("attempt", range(3))
def test_processes_that_make_the_store_at_once_all_record_in_it(folder: bytes, attempt: int) -> None:
    processes = [recorder(folder, str(number), 1) for number in range(6)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(b"g")
        process.stdin.flush()
    for process in processes:
        process.communicate()
    assert [process.returncode for process in processes] == [0] * 6
    with open_store(folder, create=False) as store:
        assert sorted(ids(store.summaries())) == [f"{number}-0" for number in range(6)]
    assert os.listdir(folder) == [b"store.db"]


@pytest.mark.parametrize("seed", range(6))
def test_a_recorder_killed_at_any_instant_loses_nothing_it_had_confirmed(folder: bytes, seed: int) -> None:
    chance = random.Random(seed)
    process = recorder(folder, "killed", 1000)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"g")
    process.stdin.flush()
    for _ in range(chance.randrange(5)):
        process.stdout.readline()
    try:
        process.wait(chance.random() * 0.02)
    except subprocess.TimeoutExpired:
        process.kill()
    confirmed = [int(line) for line in process.communicate()[0].split()]
    with open_store(folder, create=True) as store:
        recorded = {point.id for point in store.summaries()}
        assert recorded >= {f"killed-{number}" for number in confirmed}
        assert store.verify() == []
        for point in store.points():
            assert [len(run.changes) for run in point.runs] == [4]
            assert all(store.has_content(change.before.digest or b"") for change in point.runs[0].changes)
        store.record_run(run_of("next", Change(b"a", file(b"1"), file(b"2"))), held(b"1", b"2"))
    assert os.listdir(folder) == [b"store.db"]


def test_an_error_in_the_middle_of_a_record_leaves_nothing_of_it(store: Store) -> None:
    class Vanishing(dict[bytes, bytes]):
        def __getitem__(self, digest: bytes) -> bytes:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.record_run(rewrite("run-1", b"1", b"2"), Vanishing(held(b"1")))
    assert (store.points(), store.usage().bytes) == ([], 0)
    record(store, "run-1", b"1", b"2")
