"""Check of a machine with a GPU: what Pipewright computes there, how fast, and PyTorch beside it.

    make gpu-check                                                  where there is Rust: target/gpu-check.tar.gz
    python3 check.py --archive gpu-check.tar.gz --out OUT           where there is a GPU: Python alone

Sections know nothing of each other. Each is a process with a limit of its own, and adds lines to
OUT/results.jsonl while it goes on: whatever ends the check, what was found until then is there. What they
printed is in OUT/logs.tar.gz. The first call takes 560 s at most; what takes longer is asked for by name
(--only compiled,chains,..; --list names all). The exit code is 0 where all that checks correctness has
passed, 1 where something has not, 2 where there is no GPU to check.

`--device cpu` is a dry run on a machine without a GPU: small networks, tests of GPUs that must say that they
were skipped, and a stand-in for PyTorch (--step). It says that the check works, and nothing of GPUs.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

import sections
import tables


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--archive", type=Path, help="what `make gpu-check` made, or a folder with what is in it; default: where this file was unpacked")
    parser.add_argument("--out", type=Path, help="folder for results; default: $OUT")
    parser.add_argument("--budget", type=float, default=570, help="seconds for everything")
    parser.add_argument("--limit", type=float, default=600, help="seconds for any section, where its own limit is longer")
    parser.add_argument("--only", help="sections, with commas between them, in place of those of the first call")
    parser.add_argument("--networks", help=f"of {', '.join(name for name, _, _ in sections.NETWORKS)}, those that are measured; default: all")
    parser.add_argument("--list", action="store_true", help="name all sections, their limits and what they find")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--step", type=Path, help="in place of scripts/pytorch/step.py")
    parser.add_argument("--section", help=argparse.SUPPRESS)
    return parser.parse_args()


def unpacked(archive, work):
    """The folder of what an archive has in it."""
    if archive is None:
        return Path(__file__).resolve().parents[2]
    if archive.is_dir():
        return archive.resolve()
    try:
        with tarfile.open(archive) as files:
            files.extractall(work, filter="data")
    except OSError as error:
        sys.exit(f"check.py: {archive}: {error.strerror}; `make gpu-check` makes the archive")
    except tarfile.TarError:
        sys.exit(f"check.py: {archive} is no archive; `make gpu-check` makes it")
    return work / "gpu-check"


def chosen(only):
    """The sections to run, in their order."""
    if only is None:
        return [section for section in sections.ALL if section.first]
    names = only.split(",")
    known = {section.name: section for section in sections.ALL}
    for name in names:
        if name not in known:
            sys.exit(f"check.py: no section is called {name}; there are {', '.join(known)}")
    return [known[name] for name in names]


def run_section(section, limit, options, check):
    """Has a process do a section, and ends it and all that it started when its time is over."""
    command = [sys.executable, str(Path(__file__).resolve()), "--section", section.name]
    command += ["--device", options.device, "--budget", str(limit), "--out", str(check.out)]
    if options.networks:
        command += ["--networks", options.networks]
    if options.step:
        command += ["--step", str(options.step.resolve())]
    environment = dict(os.environ, GPU_CHECK_FOLDER=str(check.folder), GPU_CHECK_WORK=str(check.work))
    begin = time.monotonic()
    with open(check.work / f"log-{section.name}.txt", "wb") as log:
        # A session of its own: what it starts belongs to it, and nothing else does.
        child = subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            env=environment, start_new_session=True,
        )
        try:
            status = "done" if child.wait(limit) == 0 else "failed"
        except subprocess.TimeoutExpired:
            status = "out of time"
        finally:
            try:
                os.killpg(child.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            child.wait()
    check.row("section", name=section.name, status=status, seconds=round(time.monotonic() - begin, 1))
    keep_logs(check)
    return status


def keep_logs(check):
    """All logs so far in one file, written beside and renamed."""
    beside = check.out / ".logs.tar.gz"
    with tarfile.open(beside, "w:gz") as files:
        for log in sorted(check.work.glob("log-*.txt")):
            files.add(log, log.name)
    beside.rename(check.out / "logs.tar.gz")


def run_all(options, check):
    """All sections in their order, as far as the budget goes; whether correctness was found."""
    begin, sound = time.monotonic(), True
    for section in chosen(options.only):
        left = options.budget - (time.monotonic() - begin)
        # Half of its limit is worth a beginning: most sections need less.
        if left < section.limit / 2:
            why = f"{left:.0f} s are left, and it may need {section.limit}"
            check.row("section", name=section.name, status="left out", why=why)
            sound &= not section.judges
            continue
        status = run_section(section, min(section.limit, options.limit, left), options, check)
        sound &= status == "done" or not section.judges
        if section.name == "probe" and status != "done" and not check.dry:
            return None
    return sound


def main():
    options = arguments()
    if options.list:
        for section in sections.ALL:
            print(f"{section.name:10} {section.limit:>4} s  {section.function.__doc__.splitlines()[0]}")
        return 0
    out = options.out or (Path(os.environ["OUT"]) if os.environ.get("OUT") else None)
    if out is None:
        sys.exit("check.py: --out names the folder for results")
    out.mkdir(parents=True, exist_ok=True)
    if options.section:
        work, folder = Path(os.environ["GPU_CHECK_WORK"]), Path(os.environ["GPU_CHECK_FOLDER"])
        check = sections.Check(folder, out.resolve(), work, options)
        section = next(section for section in sections.ALL if section.name == options.section)
        return 0 if section.function(check) else 1
    chosen(options.only)
    sections.networks_of(options)
    work = Path(tempfile.mkdtemp(prefix="gpu-check-"))
    try:
        check = sections.Check(unpacked(options.archive, work), out.resolve(), work, options)
        if not check.runner.exists():
            sys.exit(f"check.py: {check.runner} is missing; `make gpu-check` makes the archive")
        (check.out / "results.jsonl").write_text("")
        sound = run_all(options, check)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    text = tables.text([json.loads(line) for line in open(check.out / "results.jsonl")])
    (check.out / "table.txt").write_text(text)
    print(text)
    return 2 if sound is None else 0 if sound else 1


if __name__ == "__main__":
    sys.exit(main())
