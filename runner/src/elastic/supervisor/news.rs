//! News for members: who has no ranks, and that the job is done.

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

/// Who came and who goes, for people.
fn changes(before: &[Node], after: &[Node]) -> Vec<String> {
    let of = |nodes: &[Node], name: &str| nodes.iter().find(|node| node.name == name).cloned();
    let mut all = vec![];
    for node in after {
        let Node { name, slots, leaving, .. } = node;
        match of(before, name) {
            None => {
                let end = if *slots == 1 { "" } else { "s" };
                all.push(format!("`{name}` joins with {slots} slot{end}"));
            }
            Some(known) if *leaving && !known.leaving => all.push(format!("`{name}` is to leave")),
            Some(_) => {}
        }
    }
    let gone = before.iter().filter(|node| of(after, &node.name).is_none());
    all.extend(gone.map(|node| format!("`{}` is gone", node.name)));
    all
}

impl Supervisor<'_> {
    /// Says who came and who goes. That its own nodes come is no news.
    pub(super) fn note_members(&self, nodes: &[Node]) {
        let own = |node: &&Node| {
            self.nodes.is_empty() && self.job.nodes.iter().any(|n| n.name == node.name)
        };
        let known: Vec<Node> = nodes.iter().filter(own).chain(&self.nodes).cloned().collect();
        for change in changes(&known, nodes) {
            note!("{change}");
        }
    }

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
            warn!("members cannot be told: {e}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_and_goes_is_named() {
        let node = |name: &str, slots, leaving| Node {
            name: name.into(),
            slots,
            host: "here".into(),
            leaving,
        };
        let before = [node("a", 2, false), node("b", 1, false), node("c", 1, false)];
        let after = [node("a", 2, false), node("b", 1, true), node("d", 1, false)];
        let said = ["`b` is to leave", "`d` joins with 1 slot", "`c` is gone"];
        assert_eq!(changes(&before, &after), said);
        assert_eq!(changes(&after, &after), [""; 0]);
    }

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
