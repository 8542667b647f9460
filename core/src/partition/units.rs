//! Things to place: items, with those that must stand together as one.
//!
//! Operations of a group stand together, a backward operation with its forward one (Tarnawski et
//! al. 2020, section 5). Order is that of the forward pass; a group of backward operations alone
//! is ordered by its backward edges, reversed. Groups that need each other in a circle are one.

use super::placement::Held;
use crate::cost::{Edge, Workload};
use crate::units::{Bytes, Nanos};
use std::collections::BTreeSet;

/// Which items without work stand with their only neighbour. No load is larger for it, and it
/// saves half of the downsets each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Absorb {
    /// None of them.
    Nothing,
    /// Those without bytes: no placement is worse for it.
    Weightless,
    /// All, their bytes forgotten: no placement is worse for it where they then still fit.
    Idle,
}

/// What is placed as one.
#[derive(Clone, Debug, Default)]
pub(super) struct Unit {
    /// Items, ascending.
    pub items: Vec<u32>,
    /// Forward and backward pass on a device.
    pub time: Nanos,
    /// On a host, where it can run there.
    pub host: Option<Nanos>,
    /// Cannot run on a device.
    pub host_only: bool,
    pub held: Held,
}

/// A value that one unit computes and others read.
#[derive(Clone, Debug)]
pub(super) struct Value {
    /// Ascending, at least two: who computes it and who reads it. A stage that has some of them
    /// but not all sends it or receives it.
    pub units: Vec<u32>,
    pub bytes: Bytes,
}

/// A workload as units in topological order.
#[derive(Clone, Debug, Default)]
pub(super) struct Units {
    pub units: Vec<Unit>,
    /// What each needs; lower numbers.
    pub before: Vec<Vec<u32>>,
    pub values: Vec<Value>,
}

impl Units {
    pub(super) fn of(work: &Workload, absorb: Absorb) -> Self {
        let mut root: Vec<u32> = (0..work.items.len() as u32).collect();
        join_groups(work, &mut root);
        let mut absorbed = vec![false; work.items.len()];
        while absorb_idle(work, absorb, &mut root, &mut absorbed) {}
        let (class, classes) = numbered(&mut root);
        let arcs = arcs(work, &class, classes);
        let (component, count) = components(classes, &arcs);
        let unit_of_item: Vec<u32> = class.iter().map(|class| component[*class as usize]).collect();
        let mut units = vec![Unit { host: Some(Nanos::ZERO), ..Unit::default() }; count];
        for (item, unit) in unit_of_item.iter().enumerate() {
            let (unit, from) = (&mut units[*unit as usize], &work.items[item]);
            unit.items.push(item as u32);
            unit.time += from.time();
            unit.host = unit.host.zip(from.rules.host).map(|(sum, time)| sum + time);
            unit.host_only |= from.rules.host_only;
            if !absorbed[item] {
                unit.held = unit.held + Held::from(from);
            }
        }
        let mut before = vec![vec![]; count];
        for (from, to) in arcs {
            let (from, to) = (component[from as usize], component[to as usize]);
            if from != to {
                before[to as usize].push(from);
            }
        }
        for before in &mut before {
            before.sort_unstable();
            before.dedup();
        }
        Self { units, before, values: values(work, &unit_of_item) }.sorted()
    }

    /// In an order where a unit follows what it needs; of several, the one with the first item.
    fn sorted(self) -> Self {
        let mut after = vec![vec![]; self.units.len()];
        let mut missing: Vec<usize> = self.before.iter().map(Vec::len).collect();
        for (unit, before) in (0..).zip(&self.before) {
            for need in before {
                after[*need as usize].push(unit as u32);
            }
        }
        let free = (0..self.units.len()).filter(|unit| missing[*unit] == 0);
        let mut ready: BTreeSet<(u32, usize)> =
            free.map(|unit| (self.units[unit].items[0], unit)).collect();
        let mut order = vec![];
        while let Some((_, unit)) = ready.pop_first() {
            order.push(unit);
            for next in &after[unit] {
                missing[*next as usize] -= 1;
                if missing[*next as usize] == 0 {
                    ready.insert((self.units[*next as usize].items[0], *next as usize));
                }
            }
        }
        let mut number = vec![0; self.units.len()];
        for (new, old) in (0..).zip(&order) {
            number[*old] = new;
        }
        let renumbered = |list: &Vec<u32>| {
            let mut list: Vec<u32> = list.iter().map(|old| number[*old as usize]).collect();
            list.sort_unstable();
            list
        };
        let value = |value: &Value| Value { units: renumbered(&value.units), bytes: value.bytes };
        Self {
            units: order.iter().map(|old| self.units[*old].clone()).collect(),
            before: order.iter().map(|old| renumbered(&self.before[*old])).collect(),
            values: self.values.iter().map(value).collect(),
        }
    }
}

fn find(root: &mut [u32], mut item: u32) -> u32 {
    while root[item as usize] != item {
        root[item as usize] = root[root[item as usize] as usize];
        item = root[item as usize];
    }
    item
}

fn join(root: &mut [u32], a: u32, b: u32) {
    let (a, b) = (find(root, a), find(root, b));
    root[a.max(b) as usize] = a.min(b);
}

/// Joins items of one group.
fn join_groups(work: &Workload, root: &mut [u32]) {
    let grouped = (0..).zip(&work.items).filter_map(|(i, item)| Some((item.rules.group?, i)));
    let mut grouped: Vec<(u32, u32)> = grouped.collect();
    grouped.sort_unstable();
    for pair in grouped.windows(2).filter(|pair| pair[0].0 == pair[1].0) {
        join(root, pair[0].1, pair[1].1);
    }
}

/// Joins what has no work with its only neighbour; false when there was none.
fn absorb_idle(work: &Workload, absorb: Absorb, root: &mut [u32], absorbed: &mut [bool]) -> bool {
    const NONE: u32 = u32::MAX;
    const SEVERAL: u32 = u32::MAX - 1;
    let mut idle = vec![absorb != Absorb::Nothing; root.len()];
    let mut neighbour = vec![NONE; root.len()];
    let hosts = work.items.iter().any(|item| item.rules.host.is_some());
    for (item, own) in (0..).zip(&work.items) {
        // What no host can run would keep its neighbour from it.
        let anywhere = !hosts || own.rules.host == Some(Nanos::ZERO);
        let bytes = Held::from(own) != Held::default();
        idle[find(root, item) as usize] &= own.time() == Nanos::ZERO
            && anywhere
            && !own.rules.host_only
            && (absorb == Absorb::Idle || absorbed[item as usize] || !bytes);
    }
    for edge in &work.edges {
        let (a, b) = (find(root, edge.from), find(root, edge.to));
        for (a, b) in [(a, b), (b, a)].into_iter().filter(|(a, b)| a != b) {
            let only = &mut neighbour[a as usize];
            *only = if *only == NONE || *only == b { b } else { SEVERAL };
        }
    }
    let lonely = |item: u32| idle[item as usize] && neighbour[item as usize] < SEVERAL;
    let roots: Vec<u32> = (0..root.len() as u32).map(|item| find(root, item)).collect();
    let joined: Vec<(u32, u32)> = (0..)
        .zip(roots)
        .filter(|(_, own)| lonely(*own))
        .map(|(item, own)| (item, neighbour[own as usize]))
        .collect();
    for (item, to) in &joined {
        absorbed[*item as usize] = true;
        join(root, *item, *to);
    }
    !joined.is_empty()
}

/// Numbers of the classes by their first items, and how many.
fn numbered(root: &mut [u32]) -> (Vec<u32>, usize) {
    let mut number = vec![u32::MAX; root.len()];
    let mut count = 0;
    let class = (0..root.len() as u32).map(|item| {
        let first = find(root, item) as usize;
        if number[first] == u32::MAX {
            number[first] = count;
            count += 1;
        }
        number[first]
    });
    let class = class.collect();
    (class, count as usize)
}

/// Which class must not come after which.
fn arcs(work: &Workload, class: &[u32], classes: usize) -> Vec<(u32, u32)> {
    let mut forward = vec![false; classes];
    for (item, class) in work.items.iter().zip(class) {
        forward[*class as usize] |= !item.rules.backward;
    }
    let arc = |edge: &Edge| {
        let (from, to) = (class[edge.from as usize], class[edge.to as usize]);
        let backward = |item: u32| work.items[item as usize].rules.backward;
        match (backward(edge.from), backward(edge.to)) {
            (false, false) => Some((from, to)),
            (true, true) if !forward[from as usize] || !forward[to as usize] => Some((to, from)),
            _ => None,
        }
    };
    let mut arcs: Vec<_> =
        work.edges.iter().filter_map(arc).filter(|(from, to)| from != to).collect();
    arcs.sort_unstable();
    arcs.dedup();
    arcs
}

/// Strongly connected component of every class (Kosaraju's two passes), and how many.
fn components(classes: usize, arcs: &[(u32, u32)]) -> (Vec<u32>, usize) {
    let (mut after, mut before) = (vec![vec![]; classes], vec![vec![]; classes]);
    for (from, to) in arcs {
        after[*from as usize].push(*to);
        before[*to as usize].push(*from);
    }
    let mut left = vec![];
    let mut seen = vec![false; classes];
    for root in 0..classes {
        walk(root as u32, &after, &mut seen, &mut left);
    }
    let mut component = vec![0; classes];
    let mut count = 0;
    seen.fill(false);
    for root in left.iter().rev() {
        let mut found = vec![];
        walk(*root, &before, &mut seen, &mut found);
        for class in &found {
            component[*class as usize] = count;
        }
        count += u32::from(!found.is_empty());
    }
    (component, count as usize)
}

/// Depth first from `root` over what was not seen yet; `left` gets nodes as they are left.
fn walk(root: u32, next: &[Vec<u32>], seen: &mut [bool], left: &mut Vec<u32>) {
    if std::mem::replace(&mut seen[root as usize], true) {
        return;
    }
    let mut path = vec![(root, 0)];
    while let Some((node, at)) = path.last_mut() {
        if let Some(to) = next[*node as usize].get(*at) {
            *at += 1;
            if !std::mem::replace(&mut seen[*to as usize], true) {
                path.push((*to, 0));
            }
        } else {
            left.push(*node);
            path.pop();
        }
    }
}

/// Values that more than one unit computes or reads.
fn values(work: &Workload, unit_of_item: &[u32]) -> Vec<Value> {
    let mut edges = work.edges.clone();
    edges.sort_unstable_by_key(|edge| (edge.from, edge.to));
    let mut values = vec![];
    for edges in edges.chunk_by(|a, b| a.from == b.from) {
        let mut units = vec![unit_of_item[edges[0].from as usize]];
        units.extend(edges.iter().map(|edge| unit_of_item[edge.to as usize]));
        units.sort_unstable();
        units.dedup();
        let bytes = edges.iter().map(|edge| edge.bytes).max().unwrap_or_default();
        if units.len() > 1 {
            values.push(Value { units, bytes });
        }
    }
    values
}
