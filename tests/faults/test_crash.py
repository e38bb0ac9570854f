"""The real programs, stopped at system calls that write: the short form of `scripts/fuzz crash --long`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FUZZ = Path(__file__).resolve().parents[2] / "scripts" / "fuzz"
POINTS = 20


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is missing; test_undo_faults.py stops the undo")
def test_nothing_is_lost_wherever_ckpt_is_stopped(tmp_path: Path) -> None:
    words = [sys.executable, str(FUZZ), "crash", "--points", str(POINTS), "--jobs", "1", "--at", str(tmp_path)]
    if subprocess.run(["strace", "-qq", "-o", os.devnull, "true"], check=False, capture_output=True).returncode:
        pytest.skip("strace may not trace here")
    ended = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    tried, _, lost = ended.stdout.splitlines()[-1].partition(" points tried, ")
    assert int(tried) >= POINTS
    assert lost == "0 lost"


def test_fuzz_says_what_it_does() -> None:
    for words in (["--help"], ["crash", "--help"]):
        ended = subprocess.run([sys.executable, str(FUZZ), *words], capture_output=True, text=True, check=False)
        assert ended.returncode == 0
        assert "system call that writes" in ended.stdout or "--long" in ended.stdout
