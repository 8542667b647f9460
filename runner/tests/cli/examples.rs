//! The commands that README, docs and the help texts show, run as they are printed.
//!
//! Each runs in a folder of its own with the files that examples read: a plan, a run of it, a graph, an
//! ONNX model with data, and so on. A command with `..` or a NAME in capitals leaves something out and is
//! no example.

use crate::common::{Ended, RUNNER, mpirun_in, runner_in, scratch, write};
use pipewright_core::cost::Cluster;
use safetensors::tensor::{Dtype, TensorView, serialize};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// The repository.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// Beginnings of commands that need more than this machine and these files, and how each ends here.
const MARKED: [(&str, Expectation); 7] = [
    ("runner plan.json --device cuda", Expectation::NoGpu),
    ("runner explore", Expectation::NoPage),
    ("runner bench", Expectation::Goes),
    ("mpirun -n 4 runner bench", Expectation::Goes),
    // Another shell's job, which `elastic` tests have.
    ("runner join", Expectation::NoJob),
    ("runner leave", Expectation::NoJob),
    // As many modelled seconds as steps.
    ("mpirun -n 16 runner plan.json --device model", Expectation::Goes),
];

/// How a marked command ends.
#[derive(Clone, Copy, PartialEq)]
enum Expectation {
    /// Exit code 4, or as on a machine with a GPU.
    NoGpu,
    /// It goes on for some seconds, with nothing to complain of, until it is ended.
    Goes,
    /// The page is put into the program when it is released: `explore` tests have one.
    NoPage,
    /// There is no job.
    NoJob,
}

/// How long a command that goes on is watched.
const WATCHED: Duration = Duration::from_secs(2);

/// A command and where it is printed.
struct Example {
    place: String,
    words: Vec<String>,
}

/// The commands of a text: lines of its fences, and spans of code elsewhere.
fn commands(text: &str) -> Vec<String> {
    let (mut found, mut fenced) = (vec![], false);
    for line in text.lines().map(str::trim) {
        if line.starts_with("```") {
            fenced = !fenced;
        } else if fenced {
            found.push(line.to_owned());
        } else {
            found.extend(line.split('`').skip(1).step_by(2).map(str::to_owned));
        }
    }
    found
}

/// The words of a command of the runner that leaves nothing out.
fn words(command: &str) -> Option<Vec<String>> {
    // What follows two spaces or a hash says what the command does.
    let command = command.split(" #").next()?.split("  ").next()?.split(" > ").next()?.trim();
    let words: Vec<String> =
        command.split(' ').map(|word| word.replace("target/release/", "")).collect();
    let runner = match words.first()?.as_str() {
        "runner" => 0,
        "mpirun" => words.iter().position(|word| word == "runner")?,
        _ => return None,
    };
    let args = &words[runner + 1..];
    let whole = args.len() > 1 || args.first().is_some_and(|arg| arg.ends_with(".json"));
    let named = |word: &String| {
        word.contains("..")
            || word.starts_with(['[', '<'])
            || word
                .split(':')
                .any(|part| part.len() > 1 && part.bytes().all(|b| b.is_ascii_uppercase()))
            || word == "N"
    };
    (whole && !words.iter().any(named)).then_some(words)
}

fn examples() -> Vec<Example> {
    let mut texts = vec![];
    let docs = std::fs::read_dir(Path::new(ROOT).join("docs")).unwrap();
    let mut files: Vec<PathBuf> = docs.map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|ending| ending == "md"));
    files.push(Path::new(ROOT).join("README.md"));
    files.sort();
    for path in files {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        texts.push((name, commands(&std::fs::read_to_string(&path).unwrap())));
    }
    let help = |args: &[&str]| runner_in(Path::new("."), args).done().stdout.clone();
    let whole = help(&["--help"]);
    let subcommands = whole.lines().skip_while(|line| *line != "Commands:").skip(1);
    let subcommands = subcommands.take_while(|line| !line.is_empty());
    let subcommands: Vec<&str> =
        subcommands.filter_map(|line| line.split_whitespace().next()).collect();
    assert!(subcommands.len() > 15, "{subcommands:?}");
    for name in [""].into_iter().chain(subcommands.iter().copied().filter(|name| *name != "help")) {
        let text = if name.is_empty() { whole.clone() } else { help(&[name, "--help"]) };
        // Examples are lines of their own, or follow a colon.
        let lines =
            text.lines().map(|line| match line.find(": runner ").or(line.find(": mpirun ")) {
                Some(at) => line[at + 2..].to_owned(),
                None => line.trim().to_owned(),
            });
        texts.push((format!("runner {name} --help"), lines.collect()));
    }
    let mut seen = BTreeSet::new();
    let mut found = vec![];
    for (place, commands) in texts {
        for command in commands {
            let Some(words) = words(&command) else { continue };
            if seen.insert(words.clone()) {
                found.push(Example { place: place.clone(), words });
            }
        }
    }
    found
}

/// A folder with the files that examples read, for a command of so many ranks.
fn world(name: &str, words: &[String]) -> PathBuf {
    let dir = scratch(name);
    let root = std::fs::canonicalize(ROOT).unwrap();
    std::os::unix::fs::symlink(root.join("tests"), dir.join("tests")).unwrap();
    let ranks = words.iter().position(|word| word == "-n").map_or("4", |at| words[at + 1].as_str());
    let digits = ["digits-cnn", "--data", "idx:tests/data/digits"];
    // Megatron's layout describes transformers alone.
    let network = "transformer:layers=4,hidden=16,heads=2,sequence=8,vocabulary=20";
    let decoder = [network, "--replicas", "1"];
    let megatron = words.contains(&"megatron-layout".into());
    let model = if megatron { &decoder[..] } else { &digits[..] };
    let end = ["--steps", "4", "--ranks", ranks, "--mini-batch", "64", "-o", "plan.json"];
    let plan = [&["plan", "--model"], model, &end].concat();
    runner_in(&dir, &plan).done();
    let reads = |file: &str| words.iter().skip(1).any(|word| word.trim_end_matches('/') == file);
    let written = |file: &str| words.windows(2).any(|pair| pair[0] == "--out" && pair[1] == file);
    let runs = ["run", "run-a", "run-b", "run/trace.json", "fp32", "fp8"];
    for run in
        runs.iter().filter(|run| reads(run) && !written(run) || words.contains(&"--weights".into()))
    {
        let run = run.split('/').next().unwrap();
        let args =
            ["plan.json", "--out", run, "--overwrite", "--save-every", "2", "--eval-every", "2"];
        runner_in(&dir, &args).done();
    }
    for (file, made) in
        [("here.json", "profile"), ("cluster.json", "profile"), ("model.safetensors", "export")]
    {
        match made {
            _ if !reads(file)
                || words.windows(2).any(|pair| pair[0] == "-o" && pair[1] == file) => {}
            "profile" => drop(runner_in(&dir, &["profile", "plan.json", "-o", file]).done().code),
            _ => drop(runner_in(&dir, &["export", "--weights", "run", file]).done().code),
        }
    }
    let preset = serde_json::to_string(&Cluster::preset("dgx-a100").unwrap()).unwrap();
    write(&dir, "mine.json", preset);
    let graph = std::fs::read(root.join("tests/data/recompute/transformer3.json.gz")).unwrap();
    for name in ["graph.json.gz", "gpt2.json.gz"] {
        std::fs::write(dir.join(name), &graph).unwrap();
    }
    // Takisawa 2022, Fig. 7, as times relative to one process.
    let points = "m,d,seconds\n1,1,1\n5,2,0.746\n5,4,0.518\n20,8,0.370\n20,16,0.287\n20,32,0.269\n";
    write(&dir, "points.csv", points);
    own_network(&root, &dir);
    dir
}

/// A network of one's own with samples for it.
fn own_network(root: &Path, dir: &Path) {
    let fixtures = root.join("tests/data/onnx");
    std::fs::copy(fixtures.join("vit.onnx"), dir.join("net.onnx")).unwrap();
    let bytes = std::fs::read(fixtures.join("vit.safetensors")).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let two = file.tensor("x").unwrap();
    let mut shape = two.shape().to_vec();
    shape[0] = 64;
    let inputs = two.data().repeat(32);
    let labels: Vec<u8> = (0..64i64).flat_map(|sample| (sample % 2).to_le_bytes()).collect();
    let tensors = [
        ("x", TensorView::new(Dtype::F32, shape, &inputs).unwrap()),
        ("y", TensorView::new(Dtype::I64, vec![64], &labels).unwrap()),
    ];
    std::fs::write(dir.join("data.safetensors"), serialize(tensors, None).unwrap()).unwrap();
}

/// Runs a command as printed; `None` without MPI where it wants that.
fn run(dir: &Path, words: &[String]) -> Option<Ended> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["mpirun", "-n", ranks, "runner", ref args @ ..] => {
            mpirun_in(dir, ranks.parse().unwrap(), args)
        }
        ["runner", ref args @ ..] => Some(runner_in(dir, args)),
        _ => panic!("{words:?} is neither `runner ..` nor `mpirun -n N runner ..`"),
    }
}

/// Watches a command that goes on, then ends it; what it said.
fn watch(dir: &Path, words: &[String]) -> String {
    let log = std::fs::File::create(dir.join("said")).unwrap();
    let args = &words[words.iter().position(|word| word == "runner").unwrap() + 1..];
    let seconds = format!("{}", WATCHED.as_secs());
    let mut command = Command::new("timeout");
    command.args(["--signal=INT", "--kill-after=60", &seconds, RUNNER]).args(args).current_dir(dir);
    command.env("BROWSER", "true").stdin(Stdio::null());
    command.stdout(log.try_clone().unwrap()).stderr(log);
    command.status().unwrap();
    std::fs::read_to_string(dir.join("said")).unwrap()
}

/// How a command went; a sentence where it is not as it should be.
fn tried(example: &Example) -> Result<(), String> {
    let line = example.words.join(" ");
    let marked =
        MARKED.iter().find(|(beginning, _)| line.starts_with(beginning)).map(|(_, here)| here);
    let dir = world("example", &example.words);
    let wrong = |why: &str| Err(format!("{}: `{line}`: {why}", example.place));
    if marked == Some(&Expectation::Goes) {
        let said = watch(&dir, &example.words);
        // It was interrupted, and may say so.
        let complaint = |line: &str| line.contains("error: ") && !line.contains("interrupted");
        if said.lines().any(complaint) || said.contains("panicked") {
            return wrong(&said);
        }
    } else {
        let Some(ended) = run(&dir, &example.words) else { return Ok(()) };
        let allowed: &[i32] = match marked {
            None => &[0],
            Some(Expectation::NoGpu) => &[0, 4],
            Some(Expectation::NoPage) => &[0, 2],
            Some(_) => &[2, 5],
        };
        if !ended.code.is_some_and(|code| allowed.contains(&code)) {
            return wrong(&format!("{ended:#?}"));
        }
    }
    std::fs::remove_dir_all(dir).unwrap();
    Ok(())
}

#[test]
fn every_command_that_is_printed_runs() {
    let all = examples();
    assert!(all.len() > 40, "{} examples", all.len());
    let used = |beginning: &str| all.iter().any(|e| e.words.join(" ").starts_with(beginning));
    let unused: Vec<&str> =
        MARKED.iter().map(|(line, _)| *line).filter(|line| !used(line)).collect();
    assert!(unused.is_empty(), "no example begins with {unused:?} any more");
    // Two at a time: most wait for processes that start and end. All of a machine know its elastic jobs.
    let (next, wrong, jobs) = (AtomicUsize::new(0), Mutex::new(vec![]), Mutex::new(()));
    let work = || {
        while let Some(example) = all.get(next.fetch_add(1, Relaxed)) {
            let in_job = |word: &String| ["elastic", "join", "leave"].contains(&word.as_str());
            let _alone = example.words.iter().any(in_job).then(|| jobs.lock().unwrap());
            if let Err(why) = tried(example) {
                wrong.lock().unwrap().push(why);
            }
        }
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(work);
        work();
        other.join().unwrap();
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), all.len(), wrong.join("\n"));
}

#[test]
fn examples_are_told_from_names() {
    let read = |text: &str| words(text).map(|words| words.join(" "));
    assert_eq!(read("runner plan.json   # trains").as_deref(), Some("runner plan.json"));
    assert_eq!(
        read("mpirun -n 2 target/release/runner a.json").as_deref(),
        Some("mpirun -n 2 runner a.json")
    );
    for name in [
        "runner plan",
        "runner plan .. --codec",
        "mpirun -n N runner plan.json",
        "runner plan --data KIND:PATH",
    ] {
        assert_eq!(read(name), None);
    }
    assert_eq!(
        commands("see `runner plan.json` and\n```\nrunner show plan.json\n```"),
        ["runner plan.json", "runner show plan.json"]
    );
}
