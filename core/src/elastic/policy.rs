//! The question whether a job may run, and its three answers.

use super::Facts;
use serde::{Deserialize, Serialize};

/// What a policy answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum Verdict {
    /// Training goes on.
    Run {
        /// With at most so many ranks; after [`decide`] with exactly so many.
        ranks: u32,
    },
    /// Nothing runs until something changes.
    Wait {
        /// For people: what it waits for.
        why: String,
    },
    /// The job ends; its last checkpoint stays.
    Fail {
        /// For people.
        why: String,
    },
}

impl Verdict {
    /// A verdict to wait.
    pub fn wait(why: impl Into<String>) -> Self {
        Verdict::Wait { why: why.into() }
    }

    /// A verdict to end the job.
    pub fn fail(why: impl Into<String>) -> Self {
        Verdict::Fail { why: why.into() }
    }
}

/// Decides whether a job may run with the members that it has.
///
/// `decide` has no side effects and no memory: it may be called at any time and any number of
/// times, and the same facts give the same verdict.
pub trait ScalePolicy {
    /// The answer to these facts. Ranks that it names need not be a size that the plan has.
    fn decide(&self, facts: &Facts) -> Verdict;

    /// What it is called, in messages and records.
    fn name(&self) -> String;
}

/// Asks `policy`, and rounds the ranks that it names down to a size that the plan has.
pub fn decide(policy: &(impl ScalePolicy + ?Sized), facts: &Facts) -> Verdict {
    let verdict = policy.decide(facts);
    let Verdict::Run { ranks } = verdict else { return verdict };
    match facts.largest(ranks) {
        Some(size) => Verdict::Run { ranks: size.ranks },
        None => Verdict::wait(match facts.sizes.first() {
            Some(least) => format!("it may have {ranks} ranks, the plan needs {}", least.ranks),
            None => format!("the plan fits on none of the {} slots that there are", facts.slots()),
        }),
    }
}

/// eChainer's three answers.
#[cfg(any(test, feature = "script"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// Training goes on, on all hosts.
    Ok,
    /// It waits.
    Wait,
    /// It ends.
    Fail,
}

#[cfg(any(test, feature = "script"))]
impl Answer {
    /// The verdict that this is about `hosts`.
    pub fn verdict(self, hosts: &[&str]) -> Verdict {
        match self {
            Answer::Ok => Verdict::Run { ranks: hosts.len() as u32 },
            Answer::Wait => Verdict::wait(format!("ok2run waits with {} hosts", hosts.len())),
            Answer::Fail => Verdict::fail(format!("ok2run fails with {} hosts", hosts.len())),
        }
    }
}

/// A name for each slot. Slots beyond what any size uses are left out, so that a member that
/// claims billions of them costs nothing.
#[cfg(any(test, feature = "script"))]
pub(super) fn hosts(facts: &Facts) -> Vec<&str> {
    let most = facts.sizes.last().map_or(0, |size| size.ranks).max(facts.limits.most) as usize;
    let names = facts.members.iter().flat_map(|m| (0..m.slots).map(|_| m.name.as_str()));
    names.take(most).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::elastic::{Member, Size};

    /// A policy in eChainer's form: a function of the hosts and of whether the job begins. As there,
    /// each rank is a host of its own: a member with several slots is named several times.
    #[derive(Clone, Copy, Debug)]
    pub(in crate::elastic) struct Ok2Run<F>(pub F);

    impl<F: Fn(&[&str], bool) -> Answer> ScalePolicy for Ok2Run<F> {
        fn decide(&self, facts: &Facts) -> Verdict {
            let hosts = hosts(facts);
            (self.0)(&hosts, facts.initial).verdict(&hosts)
        }

        fn name(&self) -> String {
            "ok2run".into()
        }
    }

    fn facts(slots: &[u32], initial: bool) -> Facts {
        let mut facts = Facts::initial(4, 10, 16);
        let member = |(i, &slots): (usize, &u32)| Member::new(format!("node{i}"), slots);
        facts.members = slots.iter().enumerate().map(member).collect();
        facts.initial = initial;
        let total = facts.slots();
        facts.sizes = [2, 4].map(|ranks| Size::ranks(ranks, 16)).to_vec();
        facts.sizes.retain(|size| size.ranks <= total);
        facts
    }

    #[test]
    fn fail_stop_as_the_article_writes_it() {
        let fail_stop = Ok2Run(|hosts: &[&str], initial| match hosts.len() {
            4 => Answer::Ok,
            _ if initial => Answer::Wait,
            _ => Answer::Fail,
        });
        assert_eq!(decide(&fail_stop, &facts(&[2, 2], true)), Verdict::Run { ranks: 4 });
        assert!(matches!(decide(&fail_stop, &facts(&[2, 1], true)), Verdict::Wait { .. }));
        assert!(matches!(decide(&fail_stop, &facts(&[2, 1], false)), Verdict::Fail { .. }));
        assert_eq!(hosts(&facts(&[1, 2], true)), ["node0", "node1", "node1"]);
    }

    #[test]
    fn ranks_are_rounded_down_to_a_size() {
        let all = Ok2Run(|_: &[&str], _| Answer::Ok);
        assert_eq!(decide(&all, &facts(&[1, 2], true)), Verdict::Run { ranks: 2 });
        let Verdict::Wait { why } = decide(&all, &facts(&[1], true)) else { panic!("runs") };
        assert_eq!(why, "the plan fits on none of the 1 slots that there are");
    }

    #[test]
    fn a_member_of_billions_of_slots_costs_nothing() {
        assert_eq!(hosts(&facts(&[u32::MAX, u32::MAX], true)).len(), 4);
    }
}
