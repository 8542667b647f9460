//! Process groups of a bucket's messages and calls.

use super::BucketSpec;
use crate::transport::ProcessGroup;
use pipewright_core::compress::Algorithm;
use pipewright_core::compress::share::Share;

/// What a group is for. Calls of each kind have an order of their own.
#[derive(Clone, Copy)]
enum Purpose {
    Plain,
    TwoShot,
    Scales,
    Codes,
    Reduce,
    Broadcast,
}

/// A bucket's groups, as numbers among all of the rank's; none where it needs none.
#[derive(Clone, Debug, Default)]
pub(super) struct ProcessGroups {
    pub plain: Option<usize>,
    pub two_shot: Option<usize>,
    pub scales: Option<usize>,
    pub codes: Option<usize>,
    /// By shard: its owner first.
    pub reduce: Vec<usize>,
    pub broadcast: Vec<usize>,
}

impl ProcessGroups {
    /// Those of a bucket; new ones are added to `all`.
    pub fn new(spec: &BucketSpec, share: &Share, all: &mut Vec<ProcessGroup>) -> Self {
        let mut number = |ranks: &[u32], purpose: Purpose| {
            let process_group = ProcessGroup { ranks: ranks.to_vec(), purpose: purpose as u32 };
            let known = all.iter().position(|other| *other == process_group);
            known.unwrap_or_else(|| {
                all.push(process_group);
                all.len() - 1
            })
        };
        let mut process_groups = Self::default();
        if spec.group.len() == 1 {
            return process_groups;
        }
        let encoded = !share.across.is_empty() || share.intra_node.is_some();
        let lossy = || spec.reductions.iter().filter(|r| encoded && !r.is_plain());
        if lossy().count() < spec.reductions.len() {
            process_groups.plain = Some(number(&spec.group, Purpose::Plain));
        }
        if lossy().next().is_none() {
            return process_groups;
        }
        let by = |algorithm| lossy().any(|r| r.algorithm == algorithm);
        if !share.across.is_empty() {
            let mut if_any =
                |algorithm, purpose| by(algorithm).then(|| number(&share.across, purpose));
            process_groups.two_shot = if_any(Algorithm::TwoShot, Purpose::TwoShot);
            process_groups.scales = if_any(Algorithm::Operator, Purpose::Scales);
            process_groups.codes = if_any(Algorithm::Operator, Purpose::Codes);
        }
        if let Some(intra_node) =
            share.intra_node.as_ref().filter(|intra_node| intra_node.ranks.len() > 1)
        {
            for shard in 0..intra_node.shards.len() {
                let owner = intra_node.ranks[shard];
                let others = intra_node.ranks.iter().copied().filter(|rank| *rank != owner);
                let ranks: Vec<u32> = [owner].into_iter().chain(others).collect();
                process_groups.reduce.push(number(&ranks, Purpose::Reduce));
                process_groups.broadcast.push(number(&ranks, Purpose::Broadcast));
            }
        }
        process_groups
    }
}
