//! `runner join` and `runner leave`: members come and go while a job runs.

use super::meeting::{Meeting, failed, host};
use crate::args::{JoinArgs, LeaveArgs};
use crate::elastic::membership::{Held, Lease, Membership, MembershipError, News, Node};
use crate::failure::{Code, Failure};
use crate::signals;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How often a lease is looked at, and a member that is to leave.
const LOOK: Duration = Duration::from_millis(100);

/// How often a coordinator elsewhere is asked what is new.
const NEWS_FROM_AFAR: Duration = Duration::from_secs(1);

/// A member that waits so long says what for: the job makes its step, which may be a long one, and begins
/// anew without it.
const SAYS_AFTER: Duration = Duration::from_secs(10);

/// A job that has not let a member go by then does not live.
const LEAVES_WITHIN: Duration = Duration::from_secs(600);

/// A supervisor that held the meeting and is not there for so long is gone with its job.
const GONE_AFTER: Duration = Duration::from_secs(10);

/// Time between two attempts to join again.
const AGAIN: Duration = Duration::from_secs(1);

/// A member, until it is told to go or this process is.
pub fn join(args: &JoinArgs) -> Result<(), Failure> {
    let meeting = Meeting::find(&args.meeting)?;
    let membership = meeting.membership();
    let host = args.host.clone().unwrap_or_else(host);
    let name = args.name.clone().unwrap_or_else(|| format!("{host}-{}", std::process::id()));
    let node = Node { name, slots: args.slots, host, leaving: false };
    // What was told before is of a job before this one.
    let mut told = Told::new(membership.news().unwrap_or_default());
    let mut lease = membership.join(&node).map_err(failed)?;
    let (name, slots) = (&node.name, node.slots);
    let plural = if slots == 1 { "" } else { "s" };
    tell!("joined as `{name}` with {slots} slot{plural}; Ctrl-C or `runner leave` ends it");
    let signals = signals()?;
    let mut leaves: Option<Waits> = None;
    let look_again = if args.meeting.etcd.is_some() { NEWS_FROM_AFAR } else { LOOK };
    let mut next_news = Instant::now();
    // An etcd comes back one day.
    let patience = if args.meeting.etcd.is_some() { Duration::MAX } else { GONE_AFTER };
    loop {
        match signals.recv_timeout(LOOK) {
            Ok(()) if leaves.is_none() => {
                leaves = Some(Waits::new("Ctrl-C leaves at once"));
                membership.leave(&node.name).map_err(failed)?;
            }
            Ok(()) => return Err(Failure::new(Code::Interrupted, "left without a word")),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
        }
        if leaves.is_none() && next_news <= Instant::now() {
            next_news = Instant::now() + look_again;
            if membership.news().is_ok_and(|news| told.hears(&news, &node.name)) {
                tell!("the job is done");
                return Ok(());
            }
        }
        let late = leaves.as_mut().is_some_and(|waits| waits.too_long(Instant::now()));
        match lease.held() {
            Held::Removed => break,
            Held::Yes | Held::Expired if late => {
                return Err(Failure::new(
                    Code::Peers,
                    "the job did not let this member go in time",
                ));
            }
            Held::Yes => {}
            Held::Expired if leaves.is_some() => break,
            Held::Expired => match rejoin(membership, &node, (&signals, patience))? {
                Some(again) => lease = again,
                None => break,
            },
        }
    }
    tell!("left");
    Ok(())
}

/// A wait until the job lets a member go.
struct Waits {
    since: Instant,
    /// What whoever waits may do, until it has been said.
    may: Option<&'static str>,
}

impl Waits {
    fn new(may: &'static str) -> Self {
        Self { since: Instant::now(), may: Some(may) }
    }

    /// Whether to wait no longer. Says once what is waited for.
    fn too_long(&mut self, now: Instant) -> bool {
        if now - self.since > SAYS_AFTER
            && let Some(may) = self.may.take()
        {
            note!("note: the job makes its step before a member goes; {may}");
        }
        now - self.since > LEAVES_WITHIN
    }
}

/// What a member knows of the job.
struct Told {
    last: News,
    idle: bool,
}

impl Told {
    fn new(last: News) -> Self {
        Self { last, idle: false }
    }

    /// Says what is new to the member of that name; whether the job is done.
    fn hears(&mut self, news: &News, name: &str) -> bool {
        let idle = news.idle.iter().any(|other| other == name);
        if idle && !self.idle {
            note!(
                "note: `{name}` is idle: the job runs as well without its slots, for no plan that the \
                 mini-batch, the stages and the policy allow uses them too; it waits"
            );
        } else if self.idle && !idle {
            note!("note: `{name}` is not idle any more");
        }
        self.idle = idle;
        let done = news.done.is_some() && news.done != self.last.done;
        self.last = news.clone();
        done
    }
}

/// Joins again when the coordinator is back; `None` when this process is told to end meanwhile, or the
/// job is over.
fn rejoin(
    membership: &dyn Membership,
    node: &Node,
    (signals, patience): (&Receiver<()>, Duration),
) -> Result<Option<Box<dyn Lease>>, Failure> {
    warn!("the lease was lost; joining again");
    let begin = Instant::now();
    loop {
        match membership.join(node) {
            Ok(lease) => return Ok(Some(lease)),
            // One's own, which has not expired yet.
            Err(MembershipError::Taken(_)) => {}
            Err(e @ MembershipError::Unreachable { .. }) if begin.elapsed() > patience => {
                return Err(failed(e));
            }
            Err(MembershipError::Unreachable { .. }) => {}
            Err(e) => return Err(failed(e)),
        }
        if signals.recv_timeout(AGAIN).is_ok() {
            return Ok(None);
        }
    }
}

fn signals() -> Result<Receiver<()>, Failure> {
    let failed = |e: std::io::Error| Failure::new(Code::Failed, format!("signals: {e}"));
    let mut signals = signal_hook::iterator::Signals::new(signals::ends()).map_err(failed)?;
    let (sender, receiver) = channel();
    std::thread::spawn(move || signals.forever().try_for_each(|_| sender.send(())));
    Ok(receiver)
}

/// Asks a member to leave, and waits until it has.
pub fn leave(args: &LeaveArgs) -> Result<(), Failure> {
    let meeting = Meeting::find(&args.meeting)?;
    let membership = meeting.membership();
    membership.leave(&args.name).map_err(failed)?;
    let mut waits = Waits::new("it has been told, this command need not wait");
    while membership.members().map_err(failed)?.iter().any(|node| node.name == args.name) {
        if waits.too_long(Instant::now()) {
            let message = format!("`{}` was asked to leave and is still a member", args.name);
            return Err(Failure::new(Code::Peers, message));
        }
        std::thread::sleep(LOOK);
    }
    tell!("`{}` has left", args.name);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_explained_before_it_is_too_long() {
        let mut waits = Waits::new("told");
        let begin = waits.since;
        assert!(!waits.too_long(begin + SAYS_AFTER) && waits.may.is_some());
        assert!(!waits.too_long(begin + SAYS_AFTER * 2) && waits.may.is_none(), "it was said");
        assert!(!waits.too_long(begin + LEAVES_WITHIN));
        assert!(waits.too_long(begin + LEAVES_WITHIN * 2));
    }
}
