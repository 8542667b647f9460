"""Sections of the check: what each runs, and what it writes to results.jsonl.

A section returns whether all is well; what is wrong is in its rows.
"""

import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

GPT2 = "transformer:layers=12,hidden=768,heads=12,sequence=1024,vocabulary=50257"
# Name, model, mini-batch.
NETWORKS = [("resnet50", "resnet50", 256), ("vgg16", "vgg16", 128), ("gpt2", GPT2, 16)]
SMALL = [("digits-cnn", "digits-cnn", 8)]
STEPS = 14
# Two mini-batches take turns: each is seen, captured as a graph, and replayed from its third time on.
WARM_UP = 4
# Tests at a time.
TOGETHER = 4
# Of a step; above it, it is the input that is measured.
INPUT_BOUND = 0.05


class Check:
    """Where everything is, and how it is run."""

    def __init__(self, folder, out, work, options):
        self.folder, self.out, self.work = folder, out, work
        self.device, self.dry = options.device, options.device == "cpu"
        self.end = time.monotonic() + options.budget
        self.runner = folder / "bin" / "runner"
        self.tests = folder / "target" / "check" / "deps" / "test-cuda"
        self.step = options.step or folder / "scripts" / "pytorch" / "step.py"
        self.networks = networks_of(options)
        # Tests look for their data in the package that this names.
        self.environment = dict(os.environ, CARGO_MANIFEST_DIR=str(folder / "runner"))
        wheels = os.pathsep.join(str(lib) for lib in libraries())
        paths = [os.environ.get("LD_LIBRARY_PATH"), wheels]
        self.environment["LD_LIBRARY_PATH"] = os.pathsep.join(path for path in paths if path)

    def row(self, section, **values):
        """Adds a line to the results; it is on the disk when this returns."""
        with open(self.out / "results.jsonl", "a") as results:
            results.write(json.dumps({"section": section, **values}) + "\n")

    def left(self):
        return max(self.end - time.monotonic(), 0.1)

    def run(self, *command, limit=600):
        """A command to its end, with what it printed; code 124 where it had to be ended."""
        command = [str(part) for part in command]
        print("$", " ".join(command), flush=True)
        begin = time.monotonic()
        try:
            done = subprocess.run(
                command, env=self.environment, cwd=self.work, text=True, errors="replace",
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=min(limit, self.left()),
            )
        except subprocess.TimeoutExpired as late:
            told = [(text or b"").decode(errors="replace") for text in (late.stdout, late.stderr)]
            done = subprocess.CompletedProcess(command, 124, *told)
        print(done.stdout, done.stderr, f"({time.monotonic() - begin:.2f} s)", flush=True)
        return done

    def plan(self, model, batch, precision, *more, replicas=1):
        """A plan of one stage, whose samples are two mini-batches: these stay on the device."""
        path = self.work / "plan.json"
        made = self.run(
            self.runner, "plan", "--model", model, "--stages", 1, "--schedule", "gpipe", "--mini-batch", batch,
            "--micro-batches", 1, "--learning-rate", "1e-4", "--precision", precision, "--steps", STEPS,
            "--replicas", replicas, "--no-shuffle", *more, "-o", path,
        )
        if made.returncode != 0:
            return None
        plan = json.loads(path.read_text())
        plan["data"]["train"] = 2 * batch
        path.write_text(json.dumps(plan))
        return path

    def train(self, plan, *more, limit=600):
        """A run's result and the metrics of its first rank; or what went wrong."""
        folder = self.work / "run"
        done = self.run(
            self.runner, "run", plan, "--device", self.device, "--out", folder, "--json", "--overwrite",
            "--no-eval", *more, limit=limit,
        )
        if done.returncode != 0:
            return None, last(done)
        steps = [json.loads(line) for line in open(folder / "rank-000.jsonl")]
        return json.loads(done.stdout), steps


def networks_of(options):
    """The networks to measure."""
    all_networks = SMALL if options.device == "cpu" else NETWORKS
    if not options.networks:
        return all_networks
    wanted, known = options.networks.split(","), [name for name, _, _ in all_networks]
    for name in wanted:
        if name not in known:
            sys.exit(f"check.py: no network is called {name}; there are {', '.join(known)}")
    return [network for network in all_networks if network[0] in wanted]


def libraries():
    """NVIDIA's libraries of PyTorch's packages, where the system has none."""
    try:
        import nvidia
    except ImportError:
        return []
    found = [Path(place).glob("*/lib") for place in nvidia.__path__]
    return sorted(lib for place in found for lib in place)


def last(done):
    """Why a command failed, in its own words."""
    lines = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()
    return f"exit code {done.returncode}: {lines[-1]}"


def median(values):
    return round(statistics.median(values), 3)


def figures(result, steps):
    """What a run's steps took, in ms, the first ones left out."""
    after = steps[WARM_UP:]
    step, input_, busy = ([each[key] / 1e6 for each in after] for key in ("step_ns", "input_ns", "busy_ns"))
    ours = {"step_ms": median(step), "input_ms": median(input_), "device_ms": median(busy)}
    ours["gap_ms"] = median([a - b for a, b in zip(step, busy)])
    ours["input_bound"] = ours["input_ms"] > INPUT_BOUND * ours["step_ms"]
    ours["predicted_ms"] = round(result["predicted_step_ns"] / 1e6, 3)
    for key in ("arena", "graphs", "algorithms", "no_fp8"):
        if result.get(key):
            ours[key] = result[key]
    return ours


def probe(check):
    """What is here: GPUs, libraries and versions; a copy and a product by PyTorch as ceilings."""
    found = json.loads(check.run(check.runner, "devices", "--json").stdout)
    usable = [gpu["name"] for gpu in found["gpus"] if not gpu.get("unusable")]
    check.row("probe", **found)
    missing = [line.strip() for line in check.run("ldd", check.runner).stdout.splitlines() if "not found" in line]
    if missing:
        check.row("probe", missing=missing)
    if shutil.which("nvidia-smi"):
        asked = "name,driver_version,memory.total,clocks.max.sm,power.limit"
        check.row("probe", smi=check.run("nvidia-smi", f"--query-gpu={asked}", "--format=csv,noheader").stdout.strip())
    if check.dry:
        return not usable and not missing
    ceilings = check.run(sys.executable, Path(__file__).with_name("ceilings.py"), limit=60)
    if ceilings.returncode == 0:
        check.row("probe", **json.loads(ceilings.stdout))
    if not usable:
        check.row("probe", status="failed", why=found.get("no_gpu", "no GPU can be used"))
    return bool(usable)


def verdict(done):
    """What a test program says of one test. One that is not there, or was skipped, has not passed."""
    said = done.stdout + done.stderr
    if "SKIPPED" in said:
        return "skipped"
    passed = done.returncode == 0 and re.search(r"^test result: ok\. 1 passed", done.stdout, re.M)
    return "passed" if passed else "out of time" if done.returncode == 124 else "failed"


def names(check):
    """Tests that need a GPU: their names say so."""
    lines = check.run(check.tests, "--list").stdout.splitlines()
    tests = [line.removesuffix(": test") for line in lines if line.endswith("on_a_gpu: test")]
    return sorted(tests, key=lambda name: ("layers" in name, name))


def one(check, section, name, *more):
    """One test in a process of its own; whether it is as it must be."""
    begin = time.monotonic()
    done = check.run(check.tests, "--exact", name, *more, limit=60)
    found = verdict(done)
    row = {"name": name, "status": found, "seconds": round(time.monotonic() - begin, 1)}
    if found not in ("passed", "skipped"):
        row["message"] = (done.stdout + done.stderr)[-4000:]
    check.row(section, **row)
    # Without a GPU a test that passes has tested nothing.
    return found == ("skipped" if check.dry else "passed"), done


def tests(check):
    """Every test that needs a GPU, each in a process of its own."""
    all_tests = [name for name in names(check) if "layers" not in name]
    if not all_tests:
        check.row("tests", status="failed", message="the test program has no test on a GPU")
    # What is small leaves room on a GPU; kernels are compiled by one core each.
    with ThreadPoolExecutor(TOGETHER) as pool:
        well = list(pool.map(lambda name: one(check, "tests", name)[0], all_tests))
    return bool(all_tests) and all(well)


def layers(check):
    """Convolutions and products of real networks: NVIDIA's libraries beside our own kernels, with times."""
    found = [name for name in names(check) if "layers" in name]
    sound = bool(found)
    for name in found:
        well, done = one(check, "layers", name, "--nocapture")
        sound &= well
        for line in done.stdout.splitlines():
            if line.startswith('{"layer"'):
                check.row("layers", **json.loads(line))
    return sound


def ours(check):
    """Steps of three networks in three precisions, on samples that stay on the device."""
    sound = True
    for precision in ["bf16", "tf32", "f32"]:
        for network, model, batch in check.networks:
            sound &= measured(check, "ours", (network, model, batch), precision)
    return sound


def measured(check, section, network, precision, *more, **labels):
    """A row of a run."""
    name, model, batch = network
    of = {"network": name, "batch": batch, "precision": precision, **labels}
    plan = check.plan(model, batch, precision)
    result, steps = check.train(plan, *more) if plan else (None, "no plan was made")
    if result is None:
        check.row(section, **of, status="failed", why=steps)
        return False
    check.row(section, **of, **figures(result, steps))
    return True


def ops(check):
    """Time by operation from the device's own clock, the largest first; and the step predicted from it."""
    sound = True
    for network, model, batch in check.networks:
        of = {"network": network, "batch": batch, "precision": "bf16"}
        plan, cluster = check.plan(model, batch, "bf16"), check.work / "cluster.json"
        profiled = plan and check.run(check.runner, "profile", plan, "--device", check.device, "-o", cluster)
        if not profiled or profiled.returncode != 0:
            check.row("ops", **of, status="failed", why=last(profiled) if profiled else "no plan was made")
            sound = False
            continue
        nodes = []
        for node in json.loads(cluster.read_text())["profile"]["nodes"]:
            sample = max(node["samples"], key=lambda sample: sample["samples"])
            times = {key[:-3]: value / 1e6 for key, value in sample.items() if key.endswith("_ns")}
            nodes.append((sum(times.values()), node["node"], times))
        total = sum(ms for ms, _, _ in nodes)
        for ms, node, times in sorted(nodes, reverse=True)[:20]:
            share, times = round(ms / total, 4), {key: round(value, 4) for key, value in times.items()}
            check.row("ops", **of, node=node, ms=round(ms, 4), share=share, **times)
        sound &= predicted(check, of, model, batch, cluster)
    return sound


def predicted(check, of, model, batch, cluster):
    """Whether a step is what a plan from a profile says: a row with both."""
    plan = check.plan(model, batch, "bf16", "--cluster", cluster)
    result, steps = check.train(plan) if plan else (None, "no plan was made")
    if result is None:
        check.row("predicted", **of, status="failed", why=steps)
        return False
    found = figures(result, steps)
    off = found["predicted_ms"] / found["step_ms"] - 1
    check.row("predicted", **of, predicted_ms=found["predicted_ms"], step_ms=found["step_ms"], off=round(off, 4))
    return True


def theirs(check, section, where, precisions):
    """Steps of PyTorch on the same networks."""
    sound = True
    for precision in precisions:
        # Convolutions last: it takes PyTorch long to choose how.
        for network, model, batch in reversed(check.networks):
            of = {"network": network, "batch": batch, "precision": precision}
            where_ = "1" if check.dry else where
            done = check.run(sys.executable, check.step, model, batch, where_, STEPS - WARM_UP, precision)
            if done.returncode == 0:
                check.row(section, **of, **json.loads(done.stdout.splitlines()[-1]))
            else:
                check.row(section, **of, status="failed", why=last(done))
            sound &= done.returncode == 0
    return sound


def eager(check):
    """PyTorch's eager mode: images in channels_last, SGD and autocast as they are by default."""
    return theirs(check, "eager", "cuda", ["bf16", "tf32"])


def compiled(check):
    """torch.compile of the same."""
    return theirs(check, "compiled", "cuda-compiled", ["bf16", "tf32"])


def sanitize(check):
    """compute-sanitizer over all operations: what an emulator of kernels cannot see."""
    if not shutil.which("compute-sanitizer"):
        check.row("sanitize", status="left out", why="there is no compute-sanitizer")
        return True
    sound = True
    for tool in ["memcheck", "racecheck"]:
        name = next(name for name in names(check) if "operations" in name)
        done = check.run("compute-sanitizer", "--tool", tool, check.tests, "--exact", name)
        said = done.stdout + done.stderr
        clean = verdict(done) == "passed" and re.search(r"(ERROR|RACECHECK) SUMMARY: 0 ", said)
        status = "passed" if clean else verdict(done) if verdict(done) != "passed" else "failed"
        check.row("sanitize", tool=tool, status=status, message="" if clean else said[-4000:])
        sound &= bool(clean)
    return sound


def kill(check):
    """A run that is killed while it trains goes on from its last checkpoint, and holds no memory meanwhile."""
    every = 20
    plan, folder = check.plan("digits-cnn" if check.dry else "resnet18", 32, "f32"), check.work / "run"
    command = [check.runner, "run", plan, "--device", check.device, "--no-eval", "--quiet"]
    begun = [*command, "--out", folder, "--overwrite", "--steps", 1_000_000, "--save-every", every]
    print("$", *begun, flush=True)
    # The program itself, no shell: what is killed is what computes.
    job = subprocess.Popen([str(part) for part in begun], env=check.environment, cwd=check.work)
    metrics = folder / "rank-000.jsonl"
    try:
        while job.poll() is None and (not metrics.exists() or metrics.read_bytes().count(b"\n") < 3 * every):
            if check.left() < 5:
                break
            time.sleep(0.05)
    finally:
        ended = job.poll()
        job.kill()
        job.wait()
    if ended is not None or not metrics.exists():
        check.row("kill", status="failed", why=f"it did not train: exit code {ended}")
        return False
    if shutil.which("nvidia-smi") and str(job.pid) in holders(check):
        check.row("kill", status="failed", why=f"process {job.pid} was killed and holds the GPU")
        return False
    trained = metrics.read_bytes().count(b"\n")
    steps = trained + every
    done = check.run(*command, "--out", folder, "--resume", "--steps", steps, "--json")
    reached = json.loads(done.stdout)["steps"] if done.returncode == 0 else None
    status = "passed" if reached == steps else "failed"
    check.row("kill", status=status, killed_at=trained, reached=reached, why="" if reached else last(done))
    return status == "passed"


def holders(check):
    return check.run("nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader").stdout.split()


def memory(check):
    """A network that the GPU has no room for ends with a sentence and leaves nothing behind."""
    if check.dry:
        check.row("memory", status="left out", why="a dry run must not fill this machine's memory")
        return True
    plan = check.plan("resnet50", 8192, "f32", "--memory", "1000GB")
    result, why = check.train(plan) if plan else ("no plan", "")
    passed = result is None and "of memory left" in why
    check.row("memory", status="passed" if passed else "failed", why=why if result is None else "it ran")
    return passed


def switched(check, section, option):
    """Steps with something and without it."""
    sound = True
    for network in check.networks:
        for switch in ["on", "off"]:
            sound &= measured(check, section, network, "bf16", option, switch, switch=switch)
    return sound


def chains(check):
    """Neighbouring computations in one kernel, and one by one."""
    return switched(check, "chains", "--cuda-fusion")


def graphs(check):
    """A step as CUDA graphs, and command by command."""
    return switched(check, "graphs", "--cuda-graphs")


def layout(check):
    """Images with their channels innermost, and outermost."""
    orders = [(network, order) for network in check.networks[:2] for order in ["auto", "nchw"]]
    return all([measured(check, "layout", network, "bf16", "--cuda-layout", order, switch=order) for network, order in orders])


def algorithms(check):
    """Algorithms of the libraries that they expect to be quickest, and those that are, measured once and then known."""
    kinds = [(network, kind) for network in check.networks for kind in ["expected", "measured", "measured"]]
    return all([measured(check, "algorithms", network, "bf16", "--cuda-algorithms", kind, switch=kind) for network, kind in kinds])


def fp8(check):
    """GPT-2 with products of eight bits."""
    return all([measured(check, "fp8", network, "fp8") for network in check.networks[-1:]])


def codecs(check):
    """Codecs beside a copy of the same values."""
    path, few = check.work / "codecs.json", ["--sizes", "1MiB..1MiB", "--seconds", "0.01", "--codecs", "bf16"]
    device = few if check.dry else ["--device", "cuda", "--sizes", "16MiB..256MiB"]
    done = check.run(check.runner, "bench", "codecs", *device, "--json", path)
    if done.returncode == 0:
        check.row("codecs", found=json.loads(path.read_text()))
    else:
        check.row("codecs", status="failed", why=last(done))
    return done.returncode == 0


def overlap(check):
    """How much of the sums over two replicas lies beside computing."""
    _, model, batch = check.networks[0]
    plan = check.plan(model, batch // 2, "f32", replicas=2)
    result, why = check.train(plan) if plan else (None, "no plan was made")
    if result is None:
        check.row("overlap", status="failed", why=why)
        return False
    events = json.loads((check.work / "run" / "trace.json").read_text())["traceEvents"]
    compute, sums = {}, []
    for event in events:
        if event["ph"] == "X" and event["tid"] == 0:
            compute.setdefault(event["pid"], []).append((event["ts"], event["ts"] + event["dur"]))
        if event["ph"] == "b" and event["cat"] == "all-reduce" and event["args"]["step"] > 0:
            sums.append((event["pid"], event["ts"], event["ts"] + event["args"]["duration"] / 1e3))
    total = sum(end - start for _, start, end in sums)
    spans = ((start, end, a, b) for pid, start, end in sums for a, b in compute.get(pid, []))
    hidden = sum(max(0.0, min(end, b) - max(start, a)) for start, end, a, b in spans)
    check.row("overlap", sums_ms=round(total / 1e3, 3), hidden=round(hidden / total, 3) if total else None)
    return True


def shared(check):
    """Two replicas on the GPU, whose hosts sum, and which read each other's memory."""
    sound = True
    for name, model, batch in check.networks:
        plan, losses = check.plan(model, batch // 2, "bf16", replicas=2), {}
        # Without a GPU there is one way.
        for way in ["local"] if check.dry else ["local", "ipc"]:
            of = {"network": name, "batch": batch // 2, "precision": "bf16", "switch": way}
            result, steps = check.train(plan, "--transport", way) if plan else (None, "no plan was made")
            if result is None:
                check.row("shared", **of, status="failed", why=steps)
                sound = False
                continue
            losses[way] = [step["loss"] for step in steps]
            check.row("shared", **of, **figures(result, steps))
        if len(losses) == 2 and losses["local"] != losses["ipc"]:
            check.row("shared", network=name, status="failed", why="the losses differ")
            sound = False
    return sound


Section = namedtuple("Section", "name limit first judges function")
ALL = [
    Section("probe", 30, True, True, probe),
    Section("tests", 80, True, True, tests),
    Section("layers", 70, True, True, layers),
    Section("ours", 60, True, True, ours),
    Section("ops", 60, True, False, ops),
    Section("eager", 90, True, False, eager),
    Section("sanitize", 100, True, True, sanitize),
    Section("kill", 30, True, True, kill),
    Section("memory", 20, True, True, memory),
    Section("compiled", 360, False, False, compiled),
    Section("chains", 60, False, False, chains),
    Section("graphs", 60, False, False, graphs),
    Section("layout", 40, False, False, layout),
    Section("algorithms", 90, False, False, algorithms),
    Section("fp8", 20, False, False, fp8),
    Section("codecs", 40, False, False, codecs),
    Section("overlap", 30, False, False, overlap),
    Section("shared", 60, False, True, shared),
]
