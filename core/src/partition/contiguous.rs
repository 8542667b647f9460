//! Exact on the DAG with transfers, hosts, and workers in any order.
//!
//! Tarnawski et al. 2020 ("Efficient algorithms for device placement of DNN graph operators",
//! section 5.1): the least maximum load of a downset on some of the workers is, over the downsets
//! J below it, the larger of J's on one worker less and the load of the difference. A device's
//! load is its compute time and the time of every value that it sends or receives, each once; a
//! host's is its compute time. Workers that are alike are counted, not named, so a search over
//! orders costs the product of the counts, not factorials.
//!
//! Three things make it fast. Transfers of a difference follow from the values that each of the
//! two downsets cuts: `cut(J) + cut(I) - values cut by both`, a merge of two short lists. A first
//! pass over the downsets that cut least finds a bottleneck that is nearly best; the second, over
//! all, looks only at pairs that can beat it: work of the stage at most that bottleneck, work left
//! no more than the remaining workers can do in it. O(codes x pairs in these windows), exact.

use super::lattice::{Downset, Lattice};
use super::placement::{Held, Pipeline, Worker};
use super::straight::{scaled, unscaled};
use super::units::Units;
use crate::units::{Bytes, Nanos};

/// Downsets of the first pass.
const SAMPLE: usize = 1000;
const NONE: u64 = u64::MAX;
const NO_CLASS: u32 = u32::MAX;

pub(super) struct Contiguous<'a> {
    units: &'a Units,
    lattice: &'a Lattice,
    line: &'a Pipeline,
    classes: Vec<Class>,
    costs: Vec<u64>,
    sums: Sums,
    cuts: Cuts,
    bits: (Vec<u64>, usize),
    pub steps: u64,
}

/// Workers that are alike.
struct Class {
    worker: Worker,
    /// Indices of the workers.
    members: Vec<u32>,
}

/// Per downset, over its units.
struct Sums {
    time: Vec<u64>,
    host: Vec<u64>,
    /// Units that no host can run, and units that no device can.
    no_host: Vec<u64>,
    no_device: Vec<u64>,
    state: Vec<u64>,
    parameters: Vec<u64>,
    stash: Vec<u64>,
}

impl Sums {
    /// Bytes of the units of `large` that are not in `small`.
    fn held(&self, small: usize, large: usize) -> Held {
        let of = |sums: &Vec<u64>| Bytes(sums[large] - sums[small]);
        Held { state: of(&self.state), parameters: of(&self.parameters), stash: of(&self.stash) }
    }
}

/// The values that each downset cuts.
struct Cuts {
    first: Vec<u32>,
    /// Value, ascending, and how many of its units are inside.
    list: Vec<(u32, u32)>,
    /// Sum of the costs of a downset's values.
    total: Vec<u64>,
}

/// Largest load of a partial placement, and what it was before its last stage.
#[derive(Clone, Copy)]
struct Best {
    load: u64,
    /// Position of the downset.
    from: u32,
    code: u32,
    /// Of the worker of the last stage.
    class: u32,
}

/// What bounds the next stage.
struct Stage {
    class: usize,
    code: u32,
    /// Most work in it, and in all later ones.
    most: u64,
    left: u64,
    /// How many later workers.
    later: u64,
    memory: Option<u64>,
}

impl<'a> Contiguous<'a> {
    pub(super) fn new(units: &'a Units, lattice: &'a Lattice, line: &'a Pipeline) -> Self {
        let mut classes: Vec<Class> = vec![];
        for (index, worker) in (0..).zip(&line.workers) {
            match classes.iter_mut().find(|c| line.any_order && c.worker == *worker) {
                Some(class) => class.members.push(index),
                None => classes.push(Class { worker: worker.clone(), members: vec![index] }),
            }
        }
        let costs = costs(units, line);
        let of = |unit: u32| &units.units[unit as usize];
        let sums = Sums {
            time: lattice.sums(|u| of(u).time.0),
            host: lattice.sums(|u| of(u).host.unwrap_or_default().0),
            no_host: lattice.sums(|u| u64::from(of(u).host.is_none())),
            no_device: lattice.sums(|u| u64::from(of(u).host_only)),
            state: lattice.sums(|u| of(u).held.state.0),
            parameters: lattice.sums(|u| of(u).held.parameters.0),
            stash: lattice.sums(|u| of(u).held.stash.0),
        };
        let cuts = Cuts::of(units, lattice, &costs);
        let bits = lattice.bits(units.units.len());
        Self { units, lattice, line, classes, costs, sums, cuts, bits, steps: 0 }
    }

    /// Downset and worker at the end of each stage, and the largest load; the bytes that every
    /// worker lacks if memory does not suffice.
    pub(super) fn solve(&mut self) -> Result<(Vec<(Downset, u32)>, Nanos), Bytes> {
        let mut best = None;
        let mut below = NONE;
        if self.lattice.len() > 2 * SAMPLE {
            best = self.pass(&self.sample(), below, 0);
            below = best.as_ref().map_or(below, |(_, load): &(_, Nanos)| load.0);
        }
        let all: Vec<Downset> = (0..self.lattice.len() as Downset).collect();
        best = self.pass(&all, below, 0).or(best);
        best.ok_or_else(|| self.missing())
    }

    /// Of downsets with about equal work those that cut least.
    fn sample(&self) -> Vec<Downset> {
        let full = self.lattice.full();
        let bins = (SAMPLE / 4) as u128;
        let all = u128::from(self.sums.time[full as usize]).max(1);
        let key = |downset: &Downset| {
            let bin = u128::from(self.sums.time[*downset as usize]) * bins / all;
            (bin, self.cuts.total[*downset as usize], *downset)
        };
        let mut downsets: Vec<Downset> = (1..full).collect();
        downsets.sort_by_key(key);
        let bins = downsets.chunk_by(|a, b| key(a).0 == key(b).0);
        let mut sample: Vec<Downset> = bins.flat_map(|bin| bin.iter().take(4)).copied().collect();
        sample.extend([0, full]);
        sample
    }

    /// The best placement with a largest load under `below` whose stages end at `downsets`, when
    /// workers have `extra` more bytes.
    fn pass(
        &mut self,
        downsets: &[Downset],
        below: u64,
        extra: u64,
    ) -> Option<(Vec<(Downset, u32)>, Nanos)> {
        let mut order = downsets.to_vec();
        order.sort_by_key(|downset| (self.sums.time[*downset as usize], *downset));
        let codes = self.codes();
        let none = Best { load: NONE, from: 0, code: 0, class: NO_CLASS };
        let mut best = vec![vec![none; order.len()]; codes.len()];
        best[0][0].load = 0;
        for code in 0..codes.len() {
            let (sources, targets) = best.split_at_mut(code + 1);
            for (class, to) in self.successors(&codes, code) {
                let later: Vec<&Worker> = self.unused(&codes[to]).collect();
                let stage = Stage {
                    class,
                    code: code as u32,
                    most: self.classes[class].worker.capacity(self.units, below),
                    left: later
                        .iter()
                        .map(|w| w.capacity(self.units, below))
                        .fold(0, u64::saturating_add),
                    later: later.len() as u64,
                    memory: self.classes[class].worker.memory.map(|m| m.0.saturating_add(extra)),
                };
                let (source, target) = (&sources[code], &mut targets[to - code - 1]);
                self.extend(&order, &stage, below, source, target);
            }
        }
        // Ties go to the first code: the fewest workers.
        let last = order.len() - 1;
        let mut code = (0..codes.len()).min_by_key(|code| best[*code][last].load)?;
        let bottleneck = best[code][last].load;
        let mut used = vec![0; self.classes.len()];
        let (mut at, mut ends) = (last, vec![]);
        while bottleneck != NONE && code != 0 {
            let step = best[code][at];
            if step.class != NO_CLASS {
                ends.push((order[at], step.class as usize));
            }
            (code, at) = (step.code as usize, step.from as usize);
        }
        ends.reverse();
        let named = ends.into_iter().map(|(end, class)| {
            used[class] += 1;
            (end, self.classes[class].members[used[class] - 1])
        });
        (bottleneck != NONE).then(|| (named.collect(), Nanos(bottleneck)))
    }

    /// How many workers of each class are in use, for every state of a partial placement, the
    /// empty one first and each after those with fewer.
    fn codes(&self) -> Vec<Vec<usize>> {
        if !self.line.any_order {
            let used = |n: usize| (0..self.classes.len()).map(|c| usize::from(c < n)).collect();
            return (0..=self.classes.len()).map(used).collect();
        }
        let mut codes = vec![vec![]];
        for class in &self.classes {
            let longer = |code: &Vec<usize>| {
                let code = code.clone();
                (0..=class.members.len()).map(move |n| [&code[..], &[n]].concat())
            };
            codes = codes.iter().flat_map(longer).collect();
        }
        codes
    }

    /// Classes of which another worker can be used, and the code then.
    fn successors(&self, codes: &[Vec<usize>], code: usize) -> Vec<(usize, usize)> {
        let more = |class: usize| {
            let mut used = codes[code].clone();
            used[class] += 1;
            codes.iter().position(|other| *other == used).map(|to| (class, to))
        };
        (0..self.classes.len()).filter_map(more).collect()
    }

    fn unused(&self, code: &[usize]) -> impl Iterator<Item = &Worker> {
        let rest = |(class, used): (&'_ Class, &usize)| class.members.len() - used;
        let classes = self.classes.iter().zip(code.to_vec());
        classes
            .flat_map(move |(class, used)| std::iter::repeat_n(&class.worker, rest((class, &used))))
    }

    /// Takes `source`'s partial placements one stage further.
    fn extend(
        &mut self,
        order: &[Downset],
        stage: &Stage,
        below: u64,
        source: &[Best],
        target: &mut [Best],
    ) {
        let work = |at: usize| self.sums.time[order[at] as usize];
        let all = work(order.len() - 1);
        let low =
            (0..order.len()).collect::<Vec<_>>().partition_point(|at| all - work(*at) > stage.left);
        let mut steps = 0;
        for (from, best) in source.iter().enumerate().filter(|(_, best)| best.load < below) {
            // The worker may stay idle; where order is free, its code then simply does not occur.
            if !self.line.any_order && best.load < target[from].load {
                target[from] =
                    Best { from: from as u32, code: stage.code, class: NO_CLASS, ..*best };
            }
            let small = order[from] as usize;
            for to in low.max(from + 1)..order.len() {
                let large = order[to] as usize;
                if self.sums.time[large] - self.sums.time[small] > stage.most {
                    break;
                }
                steps += 1;
                if target[to].load <= best.load || !self.contains(large, small) {
                    continue;
                }
                let Some(load) = self.load(small, large, stage) else { continue };
                let load = load.max(best.load);
                if load < target[to].load && load < below {
                    let (from, class) = (from as u32, stage.class as u32);
                    target[to] = Best { load, from, code: stage.code, class };
                }
            }
        }
        self.steps += steps;
    }

    fn contains(&self, large: usize, small: usize) -> bool {
        let (bits, words) = &self.bits;
        let (large, small) = (&bits[large * words..][..*words], &bits[small * words..][..*words]);
        large.iter().zip(small).all(|(large, small)| small & !large == 0)
    }

    /// Load of the units of `large` that are not in `small`; `None` where they cannot run.
    fn load(&self, small: usize, large: usize, stage: &Stage) -> Option<u64> {
        let of = |sums: &Vec<u64>| sums[large] - sums[small];
        if let Some(memory) = stage.memory {
            let held = self.sums.held(small, large);
            if self.line.footprint.bytes(held, stage.later).0 > memory {
                return None;
            }
        }
        let worker = &self.classes[stage.class].worker;
        if worker.host {
            return (of(&self.sums.no_host) == 0)
                .then(|| scaled(of(&self.sums.host), worker.per_mille));
        }
        let time = scaled(of(&self.sums.time), worker.per_mille);
        (of(&self.sums.no_device) == 0)
            .then(|| time.saturating_add(self.cuts.between(small, large, &self.costs)))
    }

    /// No largest load below is possible: all workers together must take in all work.
    pub(super) fn lower_bound(&self) -> Nanos {
        let all = self.sums.time[self.lattice.full() as usize];
        let (mut low, mut high) = (0, all);
        while low < high {
            let bound = low + (high - low) / 2;
            let room = self.line.workers.iter().map(|w| w.capacity(self.units, bound));
            if room.fold(0, u64::saturating_add) >= all {
                high = bound;
            } else {
                low = bound + 1;
            }
        }
        Nanos(low)
    }

    /// How much more memory every worker needs for any placement at all.
    fn missing(&mut self) -> Bytes {
        let full = self.lattice.full() as usize;

        let all: Vec<Downset> = self.sample();
        let workers = self.line.workers.len() as u64;
        let mut high = self.line.footprint.bytes(self.sums.held(0, full), workers).0;
        let mut low = 0;
        while low < high {
            let extra = low + (high - low) / 2;
            match self.pass(&all, NONE, extra) {
                Some(_) => high = extra,
                None => low = extra + 1,
            }
        }
        Bytes(high)
    }
}

impl Worker {
    /// No set of units with more device time (as profiled) takes it at most `bound`.
    fn capacity(&self, units: &Units, bound: u64) -> u64 {
        if !self.host {
            return unscaled(bound, self.per_mille);
        }
        // The units that a host is best at, the last one divided.
        let pairs =
            units.units.iter().filter_map(|u| Some((u.time.0, scaled(u.host?.0, self.per_mille))));
        let mut pairs: Vec<(u64, u64)> = pairs.collect();
        pairs.sort_by_key(|(time, host)| {
            std::cmp::Reverse(u128::from(*time) * (1 << 40) / u128::from(*host).max(1))
        });
        let (mut room, mut device) = (bound, 0u64);
        for (time, host) in pairs {
            if host > room {
                let part = (u128::from(time) * u128::from(room)).div_ceil(u128::from(host));
                return device.saturating_add(part as u64);
            }
            room -= host;
            device = device.saturating_add(time);
        }
        device
    }
}

/// Time of the stage that has `units`, alone on worker `worker`.
pub(super) fn stage_time(units: &Units, line: &Pipeline, worker: u32, own: &[u32]) -> Nanos {
    let worker = &line.workers[worker as usize];
    let all = own.iter().map(|unit| &units.units[*unit as usize]);
    if worker.host {
        let time = all.map(|unit| unit.host.unwrap_or_default().0).sum();
        return Nanos(scaled(time, worker.per_mille));
    }
    let mut inside = vec![false; units.units.len()];
    own.iter().for_each(|unit| inside[*unit as usize] = true);
    let cut = |value: &super::units::Value| {
        let some = value.units.iter().any(|unit| inside[*unit as usize]);
        some && !value.units.iter().all(|unit| inside[*unit as usize])
    };
    let time = scaled(all.map(|unit| unit.time.0).sum(), worker.per_mille);
    let costs = costs(units, line);
    let cut = units.values.iter().zip(costs).filter(|(value, _)| cut(value));
    cut.fold(Nanos(time), |sum, (_, cost)| sum + Nanos(cost))
}

/// Time of each value to travel.
fn costs(units: &Units, line: &Pipeline) -> Vec<u64> {
    let times = if line.gradients { 2 } else { 1 };
    let cost = |value: &super::units::Value| {
        line.link.as_ref().map_or(0, |link| (link.time(value.bytes) * times).0)
    };
    units.values.iter().map(cost).collect()
}

impl Cuts {
    fn of(units: &Units, lattice: &Lattice, costs: &[u64]) -> Self {
        let mut values_of = vec![vec![]; units.units.len()];
        for (value, of) in (0..).zip(&units.values) {
            of.units.iter().for_each(|unit| values_of[*unit as usize].push(value));
        }
        let (mut first, mut list, mut total) = (vec![0, 0], Vec::<(u32, u32)>::new(), vec![0]);
        for downset in 1..lattice.len() as Downset {
            let (unit, parent) = lattice.tree(downset);
            let range = first[parent as usize] as usize..first[parent as usize + 1] as usize;
            let mut own = list[range].to_vec();
            for value in &values_of[unit as usize] {
                match own.binary_search_by_key(value, |(value, _)| *value) {
                    Ok(at) => own[at].1 += 1,
                    Err(at) => own.insert(at, (*value, 1)),
                }
            }
            own.retain(|(value, inside)| {
                (*inside as usize) < units.values[*value as usize].units.len()
            });
            total.push(
                own.iter().map(|(value, _)| costs[*value as usize]).fold(0, u64::saturating_add),
            );
            list.extend(own);
            first.push(list.len() as u32);
        }
        Self { first, list, total }
    }

    fn of_downset(&self, downset: usize) -> &[(u32, u32)] {
        &self.list[self.first[downset] as usize..self.first[downset + 1] as usize]
    }

    /// Cost of the values that `large` without `small` sends or receives.
    fn between(&self, small: usize, large: usize, costs: &[u64]) -> u64 {
        let (mut a, mut b) = (self.of_downset(small).iter(), self.of_downset(large).iter());
        let (mut left, mut right) = (a.next(), b.next());
        let mut twice = 0u64;
        while let (Some((i, few)), Some((j, many))) = (left, right) {
            if i == j {
                // Units before, none or some here, units after: counted at both ends.
                let times = if few == many { 2 } else { 1 };
                twice += times * costs[*i as usize];
            }
            if i <= j {
                left = a.next();
            }
            if j <= i {
                right = b.next();
            }
        }
        self.total[small] + self.total[large] - twice
    }
}
