//! `runner elastic`: a job that survives the loss of ranks.

mod meeting;
pub mod members;

use crate::args::{ElasticArgs, OnLossKind};
use crate::checkpoint::{FOLDER, newest, remove_all};
use crate::data;
use crate::elastic::membership::Node;
use crate::elastic::{JOURNAL, Job, OnLoss, Session, Times, supervise, survival};
use crate::failure::{Code, Failure};
use crate::fence;
use crate::lock::{Lock, LockError};
use meeting::Meeting;
use pipewright_core::elastic::{Policy, ScalePolicy, Script, Together};
use pipewright_core::plan::Plan;
use pipewright_core::predict::predict;
use std::ffi::OsString;
use std::path::Path;

/// Runs the command.
pub fn elastic(args: ElasticArgs) -> Result<(), Failure> {
    let mut plan = super::read_plan(&args.plan)?;
    plan.steps = args.steps.unwrap_or(plan.steps);
    let epoch = check(&plan)?;
    let policy = policy(&args.policy)?;
    let on_loss = on_loss(args.on_loss)?;
    let name = args.meeting.job.clone().unwrap_or_else(|| name_of(&args.out));
    crate::elastic::membership::check_name(&name)
        .map_err(|e| Failure::usage(format!("--job: {e}")))?;
    let host = meeting::host();
    let session = Session::of(&name);
    let folder = session.folder().to_owned();
    let own = session.own(&args.out, !args.overwrite).map_err(|e| Failure::file(&folder, &e))?;
    let Some(own) = own else {
        return Err(Failure::usage(format!(
            "a job called `{name}` runs on this machine; give this one another --job"
        )));
    };
    let _lock = begin(&args, &name)?;
    let nodes = match args.hosts.is_empty() {
        true => vec![node(&host, args.slots.unwrap_or(plan.ranks()), &host)],
        false => args.hosts.iter().map(|text| of_host(text)).collect::<Result<_, _>>()?,
    };
    let meeting = Meeting::hold(&args.meeting, &name, &own.session)?;
    let numbers = [
        ("--save-every", args.save_every),
        ("--keep", u64::from(args.keep)),
        ("--state-every", args.state_every),
        ("--check-replicas", args.check_replicas),
    ];
    let options =
        numbers.iter().flat_map(|(name, number)| [(*name).into(), number.to_string().into()]);
    let options: Vec<OsString> = options.chain(args.options).collect();
    let job = Job {
        name,
        plan,
        plan_file: args.plan,
        epoch,
        out: args.out,
        policy,
        options,
        keep: args.keep as usize,
        session: own.session.clone(),
        host,
        nodes: nodes.into_iter().filter(|node| node.slots > 0).collect(),
        mini_batch: args.mini_batch,
        on_loss,
        reroute: args.reroute,
        times: Times {
            settle: args.settle,
            silent: args.silent_after,
            hung: args.hung_after,
            ..Times::default()
        },
    };
    let ended = supervise(&job, meeting.membership());
    let alone = args.hosts.is_empty() && args.meeting.etcd.is_none();
    if ended.is_err() && alone && is_ahead(&own.session.state(), &job.out) {
        warn!(
            "the last step is in memory alone, in {}; it stays there: make room on the disk and \
             start the job again, before this machine is restarted",
            own.session.folder().display()
        );
        own.leave();
    }
    ended
}

/// Whether memory has a later step than the disk, which did not take it.
fn is_ahead(state: &Path, out: &Path) -> bool {
    let step = |folder: &Path| newest(folder).ok().flatten();
    step(state) > step(&out.join(FOLDER))
}

/// The way to go on after a loss, of those that MPI has.
fn on_loss(wanted: OnLossKind) -> Result<OnLoss, Failure> {
    match wanted {
        OnLossKind::Relaunch => Ok(OnLoss::Relaunch),
        OnLossKind::Auto => Ok(survival().map_or(OnLoss::Relaunch, |()| OnLoss::Auto)),
        OnLossKind::Shrink => survival()
            .map(|()| OnLoss::Shrink)
            .map_err(|why| Failure::new(Code::Hardware, format!("--on-loss shrink: {why}"))),
    }
}

/// Finds what ranks would find, before there are any. Returns the samples of an epoch.
fn check(plan: &Plan) -> Result<u64, Failure> {
    let prediction = predict(plan)?;
    super::runnable(&prediction.graph)?;
    let sample = prediction.graph.sample().expect("plans train on samples");
    let data = data::open(&plan.data, &sample, plan.seed)
        .map_err(|e| Failure::usage(format!("data {}: {e}", plan.data)))?;
    Ok(data.train.len())
}

/// Makes the run's folder, takes it, and removes what is to be replaced in it. Where another supervisor of
/// this job, on another host, has the folder, this one may wait for its turn.
fn begin(args: &ElasticArgs, job: &str) -> Result<Option<Lock>, Failure> {
    let out = &args.out;
    std::fs::create_dir_all(out).map_err(|e| Failure::file(out, &e))?;
    let lock = match Lock::take(out, Some(job)) {
        Err(LockError::Held { holder, .. })
            if args.meeting.etcd.is_some()
                && !args.overwrite
                && holder.job.as_deref() == Some(job) =>
        {
            None
        }
        taken => taken.map_err(|e| Failure::usage(e.to_string()))?,
    };
    if args.overwrite {
        remove_all(out).map_err(|e| Failure::usage(e.to_string()))?;
        for name in ["result.json", JOURNAL, fence::FILE] {
            match std::fs::remove_file(out.join(name)) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                    return Err(Failure::file(&out.join(name), &e));
                }
                _ => {}
            }
        }
    }
    Ok(lock)
}

/// The job that trains in this folder.
fn name_of(out: &Path) -> String {
    let path = std::path::absolute(out).unwrap_or_else(|_| out.into());
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' };
    name.chars().map(plain).take(64).collect()
}

fn node(name: &str, slots: u32, host: &str) -> Node {
    Node { name: name.into(), slots, host: host.into(), leaving: false }
}

/// `host` or `host:slots`.
fn of_host(text: &str) -> Result<Node, Failure> {
    let (host, slots) = text.split_once(':').unwrap_or((text, "1"));
    let slots = slots.parse().ok().filter(|slots| *slots > 0);
    let wrong = || Failure::usage(format!("--hosts: `{text}` is not like host1:2"));
    Ok(node(host, slots.ok_or_else(wrong)?, host))
}

/// Policies by their texts and scripts by their files, together where there is a `+` between them.
fn policy(text: &str) -> Result<Box<dyn ScalePolicy>, Failure> {
    let is_script = |part: &str| Path::new(part).extension().is_some_and(|end| end == "rhai");
    if !text.split('+').any(is_script) {
        let policy: Policy = text.parse().map_err(|e| Failure::usage(format!("--policy: {e}")))?;
        return Ok(Box::new(policy));
    }
    let one = |part: &str| -> Result<Box<dyn ScalePolicy + Send + Sync>, Failure> {
        let wrong = |e: String| Failure::usage(format!("--policy: {e}"));
        if !is_script(part) {
            return Ok(Box::new(part.parse::<Policy>().map_err(|e| wrong(e.to_string()))?));
        }
        let path = Path::new(part);
        let script = super::read_text(path)?;
        Ok(Box::new(Script::compile(part, &script).map_err(|e| wrong(e.to_string()))?))
    };
    Ok(Box::new(Together(text.split('+').map(one).collect::<Result<_, _>>()?)))
}
