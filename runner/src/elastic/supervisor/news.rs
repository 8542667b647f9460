//! What members are told: who has no ranks, and that the job is done.

use super::{Running, Supervisor};
use crate::elastic::membership::{News, Node};

/// Nodes that have no ranks where so many are given out in the order of the nodes that run.
fn idle(nodes: &[Node], running: &[Node], ranks: u32) -> Vec<String> {
    let mut left = ranks;
    let used = |node: &Node| {
        let mine = left.min(node.slots);
        left -= mine;
        (mine > 0).then(|| node.name.clone())
    };
    let used: Vec<String> = running.iter().filter_map(used).collect();
    let idle = nodes.iter().filter(|node| !node.leaving && !used.contains(&node.name));
    idle.map(|node| node.name.clone()).collect()
}

impl Supervisor<'_> {
    /// What a job before this one told is over.
    pub(super) fn begin_news(&self) {
        self.publish(&News::default());
    }

    /// Tells who has no ranks, where that is new.
    pub(super) fn tell_idle(&mut self, running: &Running) {
        let idle = idle(&self.nodes, &running.nodes, running.ranks);
        if idle != self.news.idle {
            let news = News { idle, done: None };
            self.publish(&news);
            self.news = news;
        }
    }

    /// Tells that the job is done.
    pub(super) fn tell_done(&self) {
        self.publish(&News { idle: vec![], done: Some(self.generation) });
    }

    /// A coordinator that cannot be reached is none of training's affair.
    fn publish(&self, news: &News) {
        if let Err(e) = self.membership.tell(news) {
            eprintln!("warning: members cannot be told: {e}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_after_the_last_rank_is_idle() {
        let node = |name: &str, slots, leaving| Node {
            name: name.into(),
            slots,
            host: "here".into(),
            leaving,
        };
        let (a, b, c) = (node("a", 2, false), node("b", 2, false), node("c", 1, false));
        let all = [a.clone(), b.clone(), c];
        assert_eq!(idle(&all, &[a.clone(), b.clone()], 4), ["c"]);
        assert_eq!(idle(&all, &all, 2), ["b", "c"]);
        assert_eq!(idle(&all, &all, 3), ["c"]);
        assert_eq!(idle(&[a, node("b", 2, true)], &[b], 2), ["a"]);
    }
}
