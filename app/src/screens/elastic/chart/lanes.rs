//! Lanes of nodes: the times at which each was a member, and at which it had ranks.

use pipewright_core::elastic::life::Life;

/// A time at which a node was there.
#[derive(Clone, Debug, PartialEq)]
pub struct Stay {
    /// Nanoseconds.
    pub from: f64,
    /// Nanoseconds; the last known moment where it did not go.
    pub to: f64,
    /// Ranks that it offered.
    pub slots: u32,
    /// Whether it went before the end.
    pub went: bool,
}

/// All nodes of a life, in the order in which they first came.
pub fn nodes(life: &Life) -> Vec<String> {
    let mut found: Vec<String> = vec![];
    for member in life.members.iter().flat_map(|(_, members)| members) {
        if !found.contains(&member.name) {
            found.push(member.name.clone());
        }
    }
    found
}

/// When a node was there.
pub fn stays(life: &Life, node: &str) -> Vec<Stay> {
    let mut stays: Vec<Stay> = vec![];
    let mut open = false;
    for (at, members) in &life.members {
        let (at, now) = (at.0 as f64, members.iter().find(|member| member.name == node));
        match (now, open) {
            (Some(member), false) => {
                let to = life.until.0 as f64;
                stays.push(Stay { from: at, to, slots: member.slots, went: false });
            }
            (None, true) => {
                if let Some(stay) = stays.last_mut() {
                    (stay.to, stay.went) = (at, true);
                }
            }
            _ => {}
        }
        open = now.is_some();
    }
    stays
}

/// When it had ranks: from the launch of a generation to its end.
pub fn works(life: &Life, node: &str) -> Vec<(f64, f64)> {
    let mine =
        life.generations.iter().filter(|g| g.members.iter().any(|member| member.name == node));
    let end =
        |at: Option<_>| at.map_or(life.until.0, |(at, _): (pipewright_core::units::Nanos, _)| at.0);
    mine.map(|g| (g.launched.0 as f64, end(g.ended) as f64)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pipewright_core::elastic::Member;
    use pipewright_core::units::Nanos;

    #[test]
    fn stays_end_where_a_node_is_missing() {
        let member = |name: &str| Member::new(name, 2);
        let members = vec![
            (Nanos(0), vec![member("a")]),
            (Nanos(5), vec![member("a"), member("b")]),
            (Nanos(7), vec![member("b")]),
            (Nanos(9), vec![member("a"), member("b")]),
        ];
        let life = Life { members, until: Nanos(20), ..Life::default() };
        assert_eq!(nodes(&life), ["a", "b"]);
        let ends = |node: &str| {
            stays(&life, node).iter().map(|s| (s.from, s.to, s.went)).collect::<Vec<_>>()
        };
        assert_eq!(ends("a"), [(0.0, 7.0, true), (9.0, 20.0, false)]);
        assert_eq!(ends("b"), [(5.0, 20.0, false)]);
        assert!(works(&life, "a").is_empty() && stays(&life, "c").is_empty());
    }
}
