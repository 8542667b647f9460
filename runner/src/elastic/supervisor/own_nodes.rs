//! The nodes that the supervisor brings itself: members as long as it lives.

use super::Supervisor;
use crate::elastic::membership::{Held, Lease, MembershipError, Node, TIME_TO_LIVE};
use crate::failure::{Code, Failure};
use std::time::{Duration, Instant};

/// Time between two attempts to join again.
const AGAIN: Duration = Duration::from_secs(1);

/// A node with its lease, where it has one.
pub(super) struct OwnNode {
    node: Node,
    lease: Option<Box<dyn Lease>>,
    /// When it may try to join again.
    next: Instant,
}

impl Supervisor<'_> {
    /// Makes the supervisor's nodes members.
    pub(super) fn bring(&mut self) -> Result<(), Failure> {
        for node in &self.job.nodes {
            let lease = match self.membership.join(node) {
                Ok(lease) => Some(lease),
                // Of a supervisor that was killed a moment ago, perhaps.
                Err(e @ MembershipError::Taken(_)) => {
                    warn!("{e}; trying again");
                    None
                }
                Err(e) => return Err(Failure::new(Code::Usage, e.to_string())),
            };
            self.own.push(OwnNode { node: node.clone(), lease, next: Instant::now() + AGAIN });
        }
        Ok(())
    }

    /// Keeps the first generation from beginning without nodes that have joined and of which the news is
    /// still on its way.
    pub(super) fn hold_for_own(&mut self, known: &[Node], now: Instant) {
        if !self.running.0.is_empty() {
            return;
        }
        let joined = |own: &&OwnNode| own.lease.as_ref().is_some_and(|l| l.held() == Held::Yes);
        let is_known = |own: &OwnNode| known.iter().any(|node| node.name == own.node.name);
        let all = self.own.iter().filter(joined).all(is_known);
        self.debounce.hold(if all { now } else { now + TIME_TO_LIVE });
    }

    /// Has those join again whose leases were not renewed in time. Whoever was told to leave stays
    /// away.
    pub(super) fn bring_back(&mut self) {
        // Nobody answers, and to wait for an answer would keep from all else.
        if self.disconnected {
            return;
        }
        let now = Instant::now();
        for own in &mut self.own {
            let lost = match &own.lease {
                Some(lease) => lease.held() == Held::Expired,
                None => true,
            };
            if !lost || own.next > now {
                continue;
            }
            // The old one first: what is left of it has the name.
            own.lease = None;
            own.next = now + AGAIN;
            match self.membership.join(&own.node) {
                Ok(lease) => own.lease = Some(lease),
                Err(MembershipError::Taken(_) | MembershipError::Unreachable { .. }) => {}
                Err(e) => warn!("{e}"),
            }
        }
    }

    /// When somebody has to look after the leases again.
    pub(super) fn next_look(&self) -> Option<Instant> {
        let away = |own: &&OwnNode| own.lease.is_none();
        let next = self.own.iter().filter(away).map(|own| own.next).min();
        // Leases expire without a word, while nobody can be reached.
        next.or_else(|| self.disconnected.then(|| Instant::now() + AGAIN))
    }
}
