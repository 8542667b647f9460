//! Gains of each codec on the plan: rows of the table, curves of the chart.

pub mod forms;

use crate::planner::inputs::Inputs;
use pipewright_core::compress::{Reduction, relative_error};
use pipewright_core::cost::Cluster;
use pipewright_core::ids::LaneId;
use pipewright_core::plan::{Communication, Plan};
use pipewright_core::predict::{Offer, Prediction, offers};

/// The codecs of the table, from the safest to the smallest.
const WAYS: [&str; 8] =
    ["bf16", "fp8-e4m3", "fp8-e5m2", "int8", "table-mean:2", "table:1", "one-bit", "top-k:1000"];

/// Bandwidths of the chart, in bytes a second: six decades.
pub const SPAN: (f64, f64) = (1e6, 1e12);

/// How a way of the table is summed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Asked {
    pub feedback: bool,
    pub by_hosts: bool,
}

/// A plan with its prediction, and the link that its gradients go over.
#[derive(Clone, Debug)]
pub struct Base {
    plan: Plan,
    prediction: Prediction,
    /// Whether that is the one between nodes.
    pub between_nodes: bool,
    /// Bytes a second of it.
    pub bytes_per_sec: f64,
}

/// A line of the chart: bandwidths and steps in seconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    pub way: Reduction,
    pub points: Vec<(f64, f64)>,
    /// The codec pays on links that are slower than this.
    pub pays_below: Option<f64>,
}

impl Base {
    /// # Errors
    /// The choices that contradict each other.
    pub fn new(inputs: &Inputs) -> Result<Self, String> {
        let (plan, prediction) = inputs.plan()?;
        let apart = |group: &Vec<LaneId>| {
            let node = |rank: Option<&LaneId>| rank.map(|rank| plan.cluster.node_of(*rank));
            node(group.first()) != node(group.last())
        };
        let between_nodes = prediction.groups.iter().any(apart);
        let cluster = &plan.cluster;
        let link = if between_nodes { cluster.network } else { cluster.local };
        Ok(Self { between_nodes, bytes_per_sec: link.bytes_per_sec, plan, prediction })
    }

    /// Ranks that sum together.
    pub fn ranks(&self) -> u32 {
        self.prediction.groups.iter().map(|group| group.len() as u32).max().unwrap_or(1)
    }

    /// Why gradients cannot be encoded.
    pub fn refusal(&self) -> Option<String> {
        self.plan.data_parallel.check_encoded().err().map(|why| why.to_string())
    }

    /// Single precision and every codec that the plan can have, with such a link.
    ///
    /// # Errors
    /// When programs would wait for each other.
    pub fn rows(&self, asked: Asked, bytes_per_sec: f64) -> Result<Vec<Offer>, String> {
        let mut cluster = self.plan.cluster.clone();
        self.set(&mut cluster, bytes_per_sec);
        let plan = Plan { cluster, ..self.plan.clone() };
        let ways: Vec<(Reduction, bool)> =
            ways(asked).into_iter().map(|way| (way, asked.by_hosts)).collect();
        offers(&plan, &self.prediction, &ways).map_err(|e| e.to_string())
    }

    /// Gives the link another bandwidth, and whole calls over it in proportion.
    fn set(&self, cluster: &mut Cluster, bytes_per_sec: f64) {
        let by = bytes_per_sec / self.bytes_per_sec;
        let (link, calls) = match self.between_nodes {
            true => (&mut cluster.network, &mut cluster.network_collectives),
            false => (&mut cluster.local, &mut cluster.collectives),
        };
        link.bytes_per_sec = bytes_per_sec;
        if let Some(calls) = calls {
            calls.bytes_per_sec *= by;
        }
    }

    /// Steps over bandwidths, single precision first; fewer points of plans that take long.
    ///
    /// # Errors
    /// When programs would wait for each other.
    pub fn curves(&self, asked: Asked) -> Result<Vec<Curve>, String> {
        let instructions = self.prediction.programs.iter().map(|p| p.train.len()).sum::<usize>();
        let points = (400_000 / instructions.max(1)).clamp(9, 37);
        let mut curves: Vec<Curve> = vec![];
        for at in 0..points {
            let share = at as f64 / (points - 1) as f64;
            let speed = SPAN.0 * (SPAN.1 / SPAN.0).powf(share);
            for (index, offer) in self.rows(asked, speed)?.into_iter().enumerate() {
                if at == 0 {
                    let way = offer.way;
                    curves.push(Curve { way, points: vec![], pays_below: None });
                }
                curves[index].points.push((speed, offer.step.secs()));
            }
        }
        if let [plain, encoded @ ..] = &mut curves[..] {
            encoded.iter_mut().for_each(|curve| curve.pays_below = crossing(plain, curve));
        }
        Ok(curves)
    }
}

/// The ways of the table besides single precision.
pub fn ways(asked: Asked) -> Vec<Reduction> {
    let read = |text: &&str| text.parse::<Reduction>().ok();
    let feedback = |way: Reduction| if asked.feedback { way.with_feedback() } else { way };
    WAYS.iter().filter_map(read).map(feedback).collect()
}

/// The relative errors of single precision and of [`ways`].
pub fn errors(ranks: u32) -> Vec<f64> {
    let ways = ways(Asked::default());
    let all = [Reduction::default()].into_iter().chain(ways);
    all.map(|way| relative_error(way, ranks).unwrap_or(f64::NAN)).collect()
}

/// Shorter steps than this share count as shorter, as in the verdicts.
const WORTH: f64 = 0.995;

/// Where an encoded step begins to be as long as the plain one, between two points on the logarithm.
fn crossing(plain: &Curve, encoded: &Curve) -> Option<f64> {
    let gain = |at: usize| encoded.points[at].1 / plain.points[at].1;
    let last = (0..encoded.points.len()).rev().find(|at| gain(*at) < WORTH)?;
    if last + 1 == encoded.points.len() {
        return Some(f64::INFINITY);
    }
    let (before, after) = (gain(last), gain(last + 1));
    let share = (WORTH - before) / (after - before);
    let [from, to] = [last, last + 1].map(|at| plain.points[at].0);
    Some(from * (to / from).powf(share.clamp(0.0, 1.0)))
}

/// The communication of a plan that takes a way of the table.
pub fn taken(now: &Communication, way: Reduction, by_hosts: bool) -> Communication {
    Communication {
        gradients: way,
        hierarchical: by_hosts && !way.is_plain(),
        buckets: vec![],
        edges: now.edges,
        choose: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planner::presets::first;
    use pipewright_core::units::Nanos;

    fn replicas() -> Inputs {
        let mut inputs = first();
        (inputs.cuts, inputs.mini_batch, inputs.micro_batches) = (vec![], 64, 1);
        inputs.rest.data_parallel.replicas = 4;
        inputs
    }

    #[test]
    fn rows_follow_the_link_and_taking_one_gives_its_step() {
        let mut inputs = replicas();
        let base = Base::new(&inputs).unwrap();
        assert_eq!(base.ranks(), 4);
        let asked = Asked::default();
        let slow = base.rows(asked, 1e6).unwrap();
        assert_eq!(slow.len(), WAYS.len() + 1);
        assert!(slow[1..].iter().all(|row| row.pays), "{slow:#?}");
        assert!(base.rows(asked, 1e13).unwrap().iter().all(|row| !row.pays));
        for row in base.rows(asked, base.bytes_per_sec).unwrap() {
            inputs.rest.communication = taken(&Communication::default(), row.way, false);
            let (_, prediction) = inputs.plan().unwrap();
            assert_eq!(prediction.timeline.step, row.step, "{}", row.way);
        }
        inputs.rest.communication = Communication::default();
        assert_eq!(base.refusal(), None);
        inputs.rest.data_parallel.zero = 2;
        let divided = Base::new(&inputs).unwrap();
        assert!(divided.refusal().is_some_and(|why| why.contains("encoded gradients")));
        assert_eq!(divided.rows(asked, 1e6).unwrap().len(), 1, "single precision");
        inputs.rest.data_parallel.zero = 0;
        inputs.rest.data_parallel.replicas = 1;
        assert!(Base::new(&inputs).unwrap().rows(asked, 1e6).unwrap().is_empty());
        inputs.rest.data_parallel.replicas = 3;
        assert!(Base::new(&inputs).is_err());
    }

    #[test]
    fn curves_fall_and_cross() {
        let base = Base::new(&replicas()).unwrap();
        let curves = base.curves(Asked { feedback: true, by_hosts: false }).unwrap();
        assert_eq!(curves.len(), WAYS.len() + 1);
        for curve in &curves {
            assert!(curve.points.windows(2).all(|pair| pair[1].1 <= pair[0].1));
        }
        for curve in &curves[1..] {
            let below = curve.pays_below.unwrap();
            let rows = |speed| base.rows(Asked { feedback: true, by_hosts: false }, speed).unwrap();
            let pays = |speed| rows(speed).into_iter().find(|r| r.way == curve.way).unwrap().pays;
            assert!(
                pays(below / 2.0) && (below > 5e11 || !pays(below * 2.0)),
                "{below} {}",
                curve.way
            );
        }
        assert_eq!(curves[0].pays_below, None);
        assert!(curves[0].points[0].1 > Nanos(1).secs());
    }

    #[test]
    fn errors_stand_beside_their_ways() {
        let errors = errors(4);
        assert_eq!(errors.len(), ways(Asked::default()).len() + 1);
        assert_eq!(errors[0], 0.0);
        assert!(errors[1..].iter().all(|error| *error > 0.0 && error.is_finite()));
    }
}
