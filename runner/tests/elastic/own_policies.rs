//! A policy that is neither built in nor a script, and does what none should: it thinks for long, then
//! panics.

use crate::common::{digits, draft, own_process, scratch, write};
use pipewright_core::elastic::{BatchRule, Facts, ScalePolicy, Verdict};
use pipewright_core::graph::presets::Preset;
use pipewright_core::plan::DataParallel;
use pipewright_runner::checkpoint::newest;
use pipewright_runner::elastic::journal::{Event, Line};
use pipewright_runner::elastic::membership::local::{Coordinator, LocalMembership};
use pipewright_runner::elastic::membership::{Node, TIME_TO_LIVE};
use pipewright_runner::elastic::{JOURNAL, Job, OnLoss, Session, Times, supervise};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How long it thinks.
const THINKS: Duration = Duration::from_secs(10);

/// Runs at first. Asked again it thinks, sees how far training comes meanwhile, and panics.
struct Thinks {
    metrics: PathBuf,
    /// Steps when it began to think, and when it had thought.
    seen: Mutex<Option<(usize, usize)>>,
}

impl Thinks {
    fn steps(&self) -> usize {
        std::fs::read_to_string(&self.metrics).unwrap_or_default().lines().count()
    }
}

impl ScalePolicy for &Thinks {
    fn decide(&self, facts: &Facts) -> Verdict {
        if facts.initial {
            return Verdict::Run { ranks: u32::MAX };
        }
        let mut seen = self.seen.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if seen.is_none() {
            let before = self.steps();
            let begin = Instant::now();
            // Its time, or what a machine takes on which many train.
            while begin.elapsed() < THINKS
                || (self.steps() == before && begin.elapsed() < 6 * THINKS)
            {
                std::thread::sleep(Duration::from_millis(20));
            }
            *seen = Some((before, self.steps()));
        }
        panic!("a policy's mistake");
    }

    fn name(&self) -> String {
        "thinks".into()
    }
}

/// A program that starts ranks as mpirun does, of the runner and not of this test.
fn mpirun(dir: &Path) -> PathBuf {
    let (this, runner) = (std::env::current_exe().unwrap(), crate::common::RUNNER);
    let script = format!(
        "#!/bin/sh\ni=$#\nwhile [ $i -gt 0 ]; do\n  word=$1; shift; i=$((i - 1))\n  \
         [ \"$word\" = '{}' ] && word='{runner}'\n  set -- \"$@\" \"$word\"\ndone\n\
         exec mpirun \"$@\"\n",
        this.display()
    );
    let path = dir.join("mpirun");
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[test]
fn training_goes_on_while_it_thinks_and_its_panic_is_a_no() {
    if pipewright::tools::find("", &["mpirun"]).is_none() {
        pipewright::tools::skip("mpirun");
        return;
    }
    let dir = scratch("own-policy");
    // The supervisor is in this process, and takes mpirun and its settings from its variables.
    let own = ("MPIRUN".to_owned(), mpirun(&dir).into_os_string());
    let settings = pipewright::mpirun::environment();
    let variables = settings.map(|(name, value)| (name.to_string(), value.into())).chain([own]);
    if own_process::is_own(variables) {
        thinks_and_panics(&dir);
    }
    std::fs::remove_dir_all(dir).unwrap();
}

fn thinks_and_panics(dir: &Path) {
    let mut draft = draft(Preset::DigitsCnn, 1);
    (draft.data, draft.steps, draft.data_parallel) = (digits(), 10_000_000, DataParallel::ddp(2));
    let plan = draft.plan().unwrap().0;
    let plan_file = dir.join(write(dir, "plan.json", plan.to_json()));
    let out = dir.join("out");
    std::fs::create_dir(&out).unwrap();
    let name = format!("test-own-policy-{}", std::process::id());
    let own = Session::of(&name).own(&out, false).unwrap().expect("nobody else has the name");
    let socket = own.session.socket();
    let coordinator = Coordinator::start(&socket, TIME_TO_LIVE).unwrap();
    let membership = LocalMembership::new(&socket, TIME_TO_LIVE);
    let thinks = Thinks { metrics: out.join("rank-000.jsonl"), seen: Mutex::default() };
    let thinks: &'static Thinks = Box::leak(Box::new(thinks));
    let short = Duration::from_millis(200);
    let job = Job {
        name,
        plan,
        plan_file,
        epoch: 1437,
        out: out.clone(),
        policy: Box::new(thinks),
        options: ["--threads", "1", "--save-every", "1000000"].map(Into::into).to_vec(),
        keep: 1,
        session: own.session.clone(),
        host: "here".into(),
        nodes: vec![Node { name: "a".into(), slots: 2, host: "here".into(), leaving: false }],
        mini_batch: BatchRule::Keep,
        reroute: false,
        on_loss: OnLoss::Relaunch,
        times: Times { settle: short, ask: Duration::from_secs(1), ..Times::default() },
    };
    let failure = supervise(&job, &membership).unwrap_err();
    assert_eq!((failure.code as u8, failure.message.as_str()), (3, "thinks: the policy panicked"));
    let (before, after) =
        thinks.seen.lock().unwrap_or_else(|e| e.into_inner()).expect("it thought");
    println!("{} steps in {} s in which the policy thought", after - before, THINKS.as_secs());
    assert!(after > before, "{before} steps, then {after}");
    let kept = newest(&out.join("checkpoints")).unwrap();
    assert_eq!(kept, Some(thinks.steps() as u64), "all that was trained is on the disk");
    let text = std::fs::read_to_string(out.join(JOURNAL)).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Line>(line).unwrap().event);
    let fails = |event: &Event| matches!(event, Event::Verdict { verdict: Verdict::Fail { why }, .. } if why == "the policy panicked");
    assert_eq!(lines.filter(fails).count(), 2, "while it ran, and when it had stopped: {text}");
    drop((coordinator, own));
}
