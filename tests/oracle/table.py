"""The commands the oracle tries, one line each. A fault found becomes a line here.

`leaves` names paths (or folders) that the undo may leave, provided they are listed with a reason. `blind` names
those that may also be left when the survey of what Git does not see is off. `short` rows run in both modes in
every test run; the rest run without the survey only in the long mode.
"""

from __future__ import annotations

from typing import NamedTuple

SPECIALS = ("pipe", "sock")
IGNORED = ("build", "app.log")
EMPTY_FOLDERS = ("hollow",)
ODD_MODES = ("secret.txt", "frozen.txt")
EVERYTHING = ("",)
UNSEEN = (*SPECIALS, *IGNORED, *EMPTY_FOLDERS)  # in a project too large to be looked at file by file: docs/limits.md
FIFOS = ("README.md", "untracked.txt")
CLOSED = ("README.md", "src", "new")  # without a survey, permission bits are what Git gives under this umask
HIDDEN = ("README.md", "src/app.py")


class Row(NamedTuple):
    """One command in one kind of project, and what its undo may leave (always listed, never silent)."""

    name: str
    command: str
    variant: str = "plain"
    leaves: tuple[str, ...] = ()
    blind: tuple[str, ...] = ()
    short: bool = False
    twin: bool = True


WIPE = "find . -mindepth 1 -maxdepth 1 ! -name .git -exec rm -rf {} +"
WIPED = (*SPECIALS, *IGNORED)
LOST_TO_SURVEY = (*EMPTY_FOLDERS, *ODD_MODES)
SPOIL = "find . -name .git -prune -o -type f -name '*.[mp][dy]' -exec sed -i 's/e/E/g' {} +"
SWAP_SAVE = "import os; open('t~','w').write('x\\n'); os.replace('t~','src/util.py')"
IN_PLACE = (
    "touch -r README.md ../feed/t; printf X | dd of=README.md conv=notrunc status=none; touch -r ../feed/t README.md"
)
UNTRACKED_IN_PLACE = "touch -r new/tool ../feed/t; sed -i s/sh/SH/ new/tool; touch -r ../feed/t new/tool"
GENERATE = "i=0; while [ $i -lt 300 ]; do mkdir -p gen/$((i % 7)); echo $i > gen/$((i % 7))/$i; i=$((i+1)); done"
FORMS = """c=odd/$(printf 'caf\\303\\251') d=odd/$(printf 'cafe\\314\\201'); mv $c odd/c; mv $d $c; mv odd/c $d"""
BOTH_WAYS = "git checkout -q other && git checkout -q main"
TOLD_AGAIN = "git update-index --no-assume-unchanged README.md src/app.py; git checkout -qf ."
GC_ALL = "git reflog expire --expire=now --all; git gc -q --prune=now"

GIT_ROWS = (
    Row("checkout of everything", "git checkout .", short=True),
    Row("checkout of one folder from a commit", "git checkout HEAD~2 -- docs"),
    Row("restore of worktree and index", "git restore -SW ."),
    Row("restore of the index only", "git restore -S ."),
    Row("switch to a branch with work in hand", "git checkout other", short=True),
    Row("switch to a branch", "git checkout -q other", "tidy", short=True),
    Row("switch to a branch by force", "git checkout -qf other", short=True),
    Row("switch discarding changes", "git switch -q --discard-changes feature"),
    Row("switch there and back", BOTH_WAYS, "tidy"),
    Row("new branch", "git switch -q -c topic"),
    Row("new branch and a commit on it", "git switch -q -c topic && git commit -qam topic"),
    Row("detached HEAD", "git checkout -qf HEAD~2"),
    Row("orphan branch emptied", "git switch -q --orphan bare-start", "tidy", blind=ODD_MODES),
    Row("stash", "git stash -q", short=True),
    Row("stash with untracked files", "git stash -q -u", short=True),
    Row("stash with all files", "git stash -q -a", leaves=IGNORED),
    Row("stash keeping the index", "git stash -q --keep-index"),
    Row("stash and pop", "git stash -q && git stash pop -q"),
    Row("stash, drop and collect", f"git stash -q && git stash drop -q; {GC_ALL}"),
    Row("stash with an intended file", "git stash -q; git stash -q -u", "intent"),
    Row("hard reset", "git reset -q --hard", short=True),
    Row("hard reset to an older commit", "git reset -q --hard HEAD~2"),
    Row("hard reset, then collected", f"git reset -q --hard HEAD~2; {GC_ALL}", short=True),
    Row("mixed reset", "git reset -q HEAD~1"),
    Row("soft reset", "git reset -q --soft HEAD~1"),
    Row("keeping reset", "git reset -q --keep HEAD~1", "tidy"),
    Row("merging reset", "git reset -q --merge HEAD~1", "tidy"),
    Row("clean", "git clean -qfd", leaves=SPECIALS, short=True, blind=EMPTY_FOLDERS),
    Row("clean with ignored files", "git clean -qfdx", leaves=WIPED, blind=EMPTY_FOLDERS, short=True),
    Row("clean of ignored files only", "git clean -qfdX", leaves=IGNORED, blind=EMPTY_FOLDERS),
    Row("merge", "git merge -q feature", "tidy"),
    Row("merge with conflicts", "git merge clash", "tidy", short=True),
    Row("merge with conflicts, aborted", "git merge clash; git merge --abort", "tidy"),
    Row("merge refused", "git merge feature"),
    Row("abort of a merge that was there", "git merge --abort", "conflict"),
    Row("checkout of a side of a conflict", "git checkout --theirs README.md", "conflict"),
    Row("resolving a conflict", "echo resolved > README.md; git add -A; git commit -qm done", "conflict"),
    Row("rebase", "git rebase -q feature", "tidy"),
    Row("rebase with conflicts", "git rebase clash", "tidy"),
    Row("rebase with autostash", "git rebase -q --autostash feature"),
    Row("cherry-pick", "git cherry-pick feature", "tidy"),
    Row("cherry-pick with conflicts", "git cherry-pick clash", "tidy"),
    Row("revert", "git revert --no-edit HEAD", "tidy"),
    Row("commit of all", "git commit -qam all", short=True),
    Row("commit of all, then an older commit", "git commit -qam all; git reset -q --hard HEAD~2"),
    Row("amended commit", "git commit -q --amend --no-edit"),
    Row("commit without a name", "git add -A; git commit -qm x; git reset -q --hard", "nameless"),
    Row("first commit", "git add -A; git commit -qm first; git rm -rq .", "unborn", blind=ODD_MODES),
    Row("removal by Git", "git rm -rqf docs src/dirty.py src/both.py"),
    Row("removal from the index only", "git rm -rqf --cached ."),
    Row("move by Git", "git mv README.md docs/read.md && git mv src code"),
    Row("adding everything", "git add -A"),
    Row("sparse checkout", "git sparse-checkout set --no-cone src", "tidy", blind=ODD_MODES),
    Row("sparse checkout undone", "git sparse-checkout disable", "sparse"),
    Row("worktree added inside", "git worktree add -q inside other", leaves=("inside",)),
    Row("submodule left", "git submodule -q deinit -f lib", "submodule", leaves=("lib",)),
    Row("submodule edited", "echo x >> lib/lib.py; rm lib/loose.txt", "submodule", leaves=("lib",)),
    Row("submodule cleaned", "git submodule -q foreach 'git reset -q --hard; git clean -qfd'", "submodule", ("lib",)),
    Row(
        "nested repository reset", "cd nested && git reset -q --hard && git clean -qfd", "nested", leaves=("nested",)
    ),
    Row("nested repository removed", "rm -rf nested", "nested", leaves=("nested",)),
    Row("repository started inside", "git init -q docs/own; echo x > docs/own/file", leaves=("docs/own",)),
    Row("cloned repository", "git clone -q .git copy", leaves=("copy",)),
    Row("index emptied", "git read-tree --empty; rm -rf src docs", blind=ODD_MODES),
    Row("index of another branch", "git read-tree other; git checkout-index -qfa"),
    Row("files hidden from Git", "git update-index --assume-unchanged README.md; echo x > README.md"),
    Row("files skipped by Git", "git update-index --skip-worktree README.md; rm README.md"),
    Row("index removed", "rm .git/index; rm -rf docs"),
    Row("patch applied", 'git apply "$FEED/change.patch"'),
    Row("patch applied to the index", 'git apply --index "$FEED/change.patch"', "tidy"),
    Row("config that hides changes", "git config core.autocrlf true; git checkout -q -f .; echo x >> README.md"),
    Row("history rewritten", "git update-ref refs/heads/main HEAD~2; git reset -q --hard"),
)

FILE_ROWS = (
    Row("everything removed but Git", WIPE, leaves=WIPED, blind=LOST_TO_SURVEY, short=True),
    Row("removal", "rm README.md src/dirty.py untracked.txt .env", short=True),
    Row("removal of odd names", "rm -rf odd new", short=True),
    Row("find with delete", "find src docs -type f -delete"),
    Row("move over a file", "mv src/util.py src/dirty.py; mv untracked.txt README.md", short=True),
    Row("copy over a file", "cp data.bin README.md; cp README.md .env; cp -f run.sh frozen.txt"),
    Row("link over a file", "ln -sf app.py src/dirty.py; ln -sfn src link-folder", short=True),
    Row("file over a link", "rm link-file link-dangling; echo x > link-file; mkdir link-dangling"),
    Row("write through links", "echo through > link-file; echo more >> link-folder/guide.md"),
    Row("write out of the project", "echo out > link-out; rm README.md"),
    Row("sed in place", "sed -i s/line/LINE/ README.md src/dirty.py src/both.py", short=True),
    Row("sed of odd names", "sed -i s/odd/ODD/ odd/*", short=True),
    Row("truncated", ": > README.md; truncate -s 5 src/dirty.py; truncate -s 9000 data.bin"),
    Row("bytes in place", "printf XX | dd of=data.bin bs=1 seek=7 conv=notrunc status=none"),
    Row("binary growth", "head -c 200000 /dev/zero >> data.bin"),
    Row("append to all states", "for f in README.md src/*.py staged-new.txt new/tool .env; do echo x >> $f; done"),
    Row("private files opened", "chmod 644 secret.txt; chmod 777 .env", blind=ODD_MODES, short=True),
    Row("files made private", "chmod 600 README.md src/*.py untracked.txt", blind=EVERYTHING, short=True),
    Row("executable bit taken", "chmod -x run.sh new/tool", short=True),
    Row("everything opened", "chmod -R 777 src odd new hollow", blind=EVERYTHING),
    Row("everything closed", "chmod -R go-rwx src docs run.sh", blind=EVERYTHING),
    Row("special bits", "chmod u+s run.sh; chmod g+s,o+t docs", blind=EVERYTHING),
    Row("folder closed", "chmod 700 docs; chmod 500 src/deep", blind=EVERYTHING),
    Row(
        "bits and bytes",
        "chmod 640 secret.txt; echo x >> secret.txt; chmod 755 README.md; echo > README.md",
        blind=ODD_MODES,
    ),
    Row("bytes of files with odd bits", "rm -f secret.txt frozen.txt", blind=ODD_MODES, short=True),
    Row("touched only", "touch README.md src/*.py untracked.txt .env", short=True),
    Row("edited and put back", "cp -p src/dirty.py ../feed/k; echo x > src/dirty.py; cat ../feed/k > src/dirty.py"),
    Row(
        "file to folder", "rm README.md src/dirty.py; mkdir README.md src/dirty.py; echo x > README.md/in", short=True
    ),
    Row("folder to file", "rm -r docs new; echo file > docs; echo file > new", short=True),
    Row("folder to link", "mv docs texts; ln -s texts docs; rm -r src/deep; ln -s /nonexistent src/deep"),
    Row("link to folder", "rm link-folder; mkdir link-folder; echo x > link-folder/guide.md"),
    Row("file to link and back", "mv README.md r; ln -s r README.md; rm README.md; mv r README.md"),
    Row(
        "file to FIFO",
        "rm README.md untracked.txt; mkfifo README.md untracked.txt",
        leaves=("README.md", "untracked.txt"),
    ),
    Row("FIFO made", "mkfifo made; echo x > README.md", leaves=("made",)),
    Row("FIFO removed", "rm pipe sock; rm README.md", leaves=SPECIALS, blind=SPECIALS),
    Row("FIFO to file", "rm pipe; echo file > pipe", leaves=("pipe",), blind=("pipe",)),
    Row("folders made deep", "mkdir -p a/b/c/d/e; echo x > a/b/c/d/e/f; mkdir empty-made"),
    Row("empty folders removed", "rmdir hollow/inner; rmdir hollow", blind=EMPTY_FOLDERS, short=True),
    Row("folder emptied and removed", "rm docs/*; rmdir docs"),
    Row("case of a name", "mv odd/Case.txt odd/case.txt; mv README.md readme.md"),
    Row("two files swapped", "mv src/app.py s; mv src/dirty.py src/app.py; mv s src/dirty.py"),
    Row("two folders swapped", "mv src s; mv docs src; mv s docs"),
    Row("forms of Unicode", FORMS),
    Row("ignore file rewritten", "echo > .gitignore", blind=IGNORED, short=True),
    Row("ignore file removed", "rm .gitignore; echo x >> build/out.o", leaves=("build",), short=True),
    Row(
        "everything ignored",
        "echo '*' > .gitignore; rm -rf src; echo x > fresh.txt",
        blind=("hollow", "new"),
        short=True,
    ),
    Row("own excludes", "echo '*.txt' >> .git/info/exclude; rm untracked.txt; echo x > fresh.txt"),
    Row("attributes that convert", "echo '* text=auto eol=crlf' > .gitattributes; echo x >> README.md; rm crlf.txt"),
    Row("attributes removed", "rm .gitattributes; echo x >> README.md; rm docs/guide.md", "text-auto"),
    Row("secrets written", "echo TOKEN=2 > .env; echo x >> local.db", short=True),
    Row("ignored file made", "echo x > fresh.db; echo x > another.log"),
    Row("log written", "echo x >> app.log", leaves=("app.log",)),
    Row("ignored folder filled", "echo x > build/new.o; echo y >> build/out.o", leaves=("build",), short=True),
    Row("ignored folder removed", "rm -rf build", leaves=("build",)),
    Row(
        "ignored folder made",
        "rm -rf build; mkdir -p src/build; echo x > src/build/x.o",
        leaves=("build", "src/build"),
    ),
    Row("same size, same time", IN_PLACE, short=True, blind=("README.md",)),
    Row("same size, same time, untracked", UNTRACKED_IN_PLACE),
    Row("hard link made", "ln src/app.py src/second-name; ln untracked.txt third-name"),
    Row("hard link broken", "cp hard-1.txt h; mv h hard-1.txt; echo x >> hard-1.txt"),
    Row("hard link written", "echo x >> hard-1.txt", short=True),
    Row("hard links removed", "rm hard-1.txt hard-2.txt"),
    Row("formatter over everything", SPOIL, short=True),
    Row("formatter that saves by rename", f'python3 -c "{SWAP_SAVE}"'),
    Row("generator of many files", GENERATE),
    Row("archive unpacked", 'tar xf "$FEED/tree.tar"'),
    Row("failing half way", "rm README.md; echo x > made.txt; exit 3", short=True),
    Row("ended by its own signal", "rm README.md; echo x > made.txt; kill -KILL $$"),
    Row("ended by a gentle signal", "echo x > README.md; kill -TERM $$"),
    Row("speaking on both streams", "echo out; echo err >&2; printf '\\377\\000'; rm README.md"),
    Row("nothing at all", "true", short=True),
    Row("made and removed", "mkdir t; echo x > t/f; rm -r t"),
    Row("owner's umask", "umask 077; echo x > made.txt; mkdir made; rm README.md; echo x > README.md"),
    Row("sparse file", "truncate -s 3M made.img; truncate -s 1M untracked.txt"),
    Row("long names", "mkdir long; touch long/$(printf '%0255d' 0); rm odd/nnn*"),
    Row("names like ours", "echo x > .ckpt-tmp; mkdir .ckpt; echo x > .ckpt/a; rm README.md"),
)

KIND_ROWS = (
    *(
        Row(
            f"everything spoilt: {variant}", f"{SPOIL}; rm -rf docs untracked.txt; git checkout -q .", variant, leaves
        )
        for variant, leaves in {
            "unborn": (),
            "worktree": (),
            "sha256": (),
            "hostile": (),
            "nameless": (),
            "split-index": (),
            "untracked-cache": (),
            "index-v4": (),
            "intent": (),
            "nested": ("nested",),
            "submodule": ("lib",),
            "conflict": (),
            "fresh": (),
            "umask-077": (),
            "file-mode-off": (),
            "filtered": ("README.md", "docs"),
            "autocrlf": (),
            "text-auto": (),
            "sparse": (),
            "skip-worktree": ("README.md", "docs/notes.md", "src/app.py"),
            "assume-unchanged": ("README.md", "docs/notes.md", "src/app.py"),
        }.items()
    ),
    Row("line ends lost", "sed -i 's/\\r//' crlf.txt; rm README.md", "autocrlf", ("crlf.txt",), short=True),
    Row("line ends lost by attribute", "sed -i 's/\\r//' crlf.txt; rm README.md", "text-auto", ("crlf.txt",)),
    Row("converted by Git", "git checkout -qf other; git checkout -qf main", "autocrlf", leaves=EVERYTHING),
    Row("filtered files removed", "rm README.md src/app.py", "filtered", leaves=("README.md",), short=True),
    Row("hidden from Git", "echo x > README.md; rm src/app.py", "assume-unchanged", HIDDEN, short=True),
    Row("skipped by Git", "echo x > README.md; rm src/app.py", "skip-worktree", HIDDEN, short=True),
    Row("unseen bits", "chmod -x run.sh; chmod +x README.md", "file-mode-off", blind=EVERYTHING, short=True),
    Row("hidden files told again", TOLD_AGAIN, "assume-unchanged", (*HIDDEN, "docs/notes.md")),
    Row("a folder of sparse files made", "mkdir -p docs; echo x > docs/guide.md", "sparse"),
    Row("same second", "echo x >> src/util.py; printf x > README.md", "fresh", short=True),
    Row("same second, same size", "sed -i s/LINE/lInE/ README.md; sed -i s/40/39/ src/util.py", "fresh", short=True),
    Row("subfolder removed", "rm -rf a; echo x > here; rm ../app.py ../../untracked.txt", "subfolder", short=True),
    Row("own folder removed", "rm -rf ../deep", "subfolder"),
    Row("reset from a subfolder", "git reset -q --hard; git clean -qfd ../..", "subfolder", SPECIALS, EMPTY_FOLDERS),
    Row(
        "reset in a linked worktree",
        "git reset -q --hard HEAD~1; git clean -qfd",
        "worktree",
        SPECIALS,
        EMPTY_FOLDERS,
        short=True,
    ),
    Row("reset under hostile settings", "git reset -q --hard; git clean -qfd", "hostile", SPECIALS, EMPTY_FOLDERS),
    Row(
        "removal under a closed umask",
        "rm -rf README.md src new; mkdir src",
        "umask-077",
        short=True,
        blind=CLOSED,
    ),
    Row("commit with an intended file", "git commit -qam all; echo x >> intended.txt", "intent"),
    Row("intended file removed", "rm intended.txt; git reset -q", "intent", short=True),
    Row("first work removed", "rm -rf README.md src untracked.txt; git reset -q", "unborn", short=True),
    Row("hash of another kind", "git stash -q -u; echo x > README.md", "sha256"),
)

ROWS = (*GIT_ROWS, *FILE_ROWS, *KIND_ROWS)
