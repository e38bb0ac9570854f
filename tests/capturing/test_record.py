"""What a command changed, told from what really stood there: everyday and destructive commands."""

from __future__ import annotations

import pytest

from ckpt_run.capture.copies import Limits

from .kit import Repo, judged

EVERYDAY = {
    "edit": "echo more >> clean.txt; sed -i s/my/your/ dirty.txt",
    "rename": "mv clean.txt moved.txt; mv src lib; mv new newer",
    "remove all": "find . -mindepth 1 -maxdepth 1 ! -name .git -exec rm -rf {} +",
    "checkout": "git checkout -q . && git clean -qfd",
    "hard reset and gc": "git reset -q --hard; git reflog expire --expire=now --all; git gc -q --prune=now",
    "stash": "git stash -q -u",
    "stash and pop": "git stash -q -u; git stash pop -q",
    "commit": "git commit -qam all",
    "amend and gc": "git commit -qa --amend -m x; git reflog expire --expire=now --all; git gc -q --prune=now",
    "mode": "chmod 755 clean.txt; chmod 644 tool.sh",
    "file to folder": "rm clean.txt new.txt; mkdir clean.txt new.txt; echo x > clean.txt/x; echo y > new.txt/y",
    "folder to file": "rm -r src new; echo s > src; echo n > new",
    "file to link": "rm clean.txt dirty.txt; ln -s /etc/passwd clean.txt; ln -s src dirty.txt",
    "link to file": "rm link; echo l > link",
    "link to link": "ln -sfn src link",
    "folder to link": "mv src elsewhere; ln -s elsewhere src",
    "file to fifo": "rm clean.txt; mkfifo clean.txt",
    "index gone": "rm .git/index; echo x >> clean.txt",
    "ignore everything": "echo '*' > .git/info/exclude; echo x > born.txt; echo y >> new.txt",
    "ignore nothing": "rm .gitignore; echo x > born.log",
    "untracked": "git rm -q --cached clean.txt src/a.py; echo x >> clean.txt",
    "attributes turned": "echo '* text eol=crlf' > .gitattributes; rm clean.txt; git checkout -q clean.txt src",
    "intent to add": "git add -N new.txt; echo x >> new.txt",
    # Git compares whole seconds of ctime unless built with USE_NSEC: the rewrite comes in a later one.
    "same size, mtime put back": "sleep 1; touch -r clean.txt build/r; printf X | dd of=clean.txt conv=notrunc"
    " status=none; touch -r build/r clean.txt; rm build/r",
}


@pytest.mark.parametrize("script", EVERYDAY.values(), ids=[name.replace(" ", "-") for name in EVERYDAY])
def test_each_change_is_told_exactly_or_as_a_gap(lived_in: Repo, limits: Limits, script: str) -> None:
    judged(lived_in, script, limits)
