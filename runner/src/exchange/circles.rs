//! Which ranks a bucket's messages and calls go among.

use super::BucketSpec;
use crate::transport::Circle;
use pipewright_core::compress::Algorithm;
use pipewright_core::compress::share::Share;

/// What a circle is for. Calls of each kind have an order of their own.
#[derive(Clone, Copy)]
enum Purpose {
    Plain,
    TwoShot,
    Scales,
    Codes,
    Reduce,
    Broadcast,
}

/// A bucket's circles, as numbers among all of the rank's; none where it needs none.
#[derive(Clone, Debug, Default)]
pub(super) struct Circles {
    pub plain: Option<usize>,
    pub two_shot: Option<usize>,
    pub scales: Option<usize>,
    pub codes: Option<usize>,
    /// By rail: its owner first.
    pub reduce: Vec<usize>,
    pub broadcast: Vec<usize>,
}

impl Circles {
    /// Those of a bucket; new ones are added to `all`.
    pub fn new(spec: &BucketSpec, share: &Share, all: &mut Vec<Circle>) -> Self {
        let mut number = |ranks: &[u32], purpose: Purpose| {
            let circle = Circle { ranks: ranks.to_vec(), purpose: purpose as u32 };
            let known = all.iter().position(|other| *other == circle);
            known.unwrap_or_else(|| {
                all.push(circle);
                all.len() - 1
            })
        };
        let mut circles = Self::default();
        if spec.group.len() == 1 {
            return circles;
        }
        let encoded = !share.across.is_empty() || share.inside.is_some();
        let lossy = || spec.reductions.iter().filter(|r| encoded && !r.is_plain());
        if lossy().count() < spec.reductions.len() {
            circles.plain = Some(number(&spec.group, Purpose::Plain));
        }
        if lossy().next().is_none() {
            return circles;
        }
        let by = |algorithm| lossy().any(|r| r.algorithm == algorithm);
        if !share.across.is_empty() {
            let mut if_any =
                |algorithm, purpose| by(algorithm).then(|| number(&share.across, purpose));
            circles.two_shot = if_any(Algorithm::TwoShot, Purpose::TwoShot);
            circles.scales = if_any(Algorithm::Operator, Purpose::Scales);
            circles.codes = if_any(Algorithm::Operator, Purpose::Codes);
        }
        if let Some(inside) = share.inside.as_ref().filter(|inside| inside.ranks.len() > 1) {
            for rail in 0..inside.rails.len() {
                let owner = inside.ranks[rail];
                let others = inside.ranks.iter().copied().filter(|rank| *rank != owner);
                let ranks: Vec<u32> = [owner].into_iter().chain(others).collect();
                circles.reduce.push(number(&ranks, Purpose::Reduce));
                circles.broadcast.push(number(&ranks, Purpose::Broadcast));
            }
        }
        circles
    }
}
