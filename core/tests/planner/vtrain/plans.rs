//! Rows without tensor parallelism: plans as `runner plan` makes them.

use super::{PRECISION, Row, cells, halves, mean_absolute, preset, rows};
use pipewright_core::cost::calibrate::{Fit, Parameter, fit};
use pipewright_core::cost::{Cluster, Costs};
use pipewright_core::plan::{DataParallel, Draft, Model, Plan, Training};
use pipewright_core::predict::Prediction;
use pipewright_core::simulate::{Copies, StageCost, simulate};
use pipewright_core::units::Nanos;

/// A row as a plan, which is simulated again and again with other costs.
pub(super) struct Planned {
    row: Row,
    plan: Plan,
    prediction: Prediction,
}

impl Planned {
    fn new(row: &Row) -> Self {
        let model = row.preset();
        let cuts = row.cuts(&model.graph().unwrap());
        let draft = Draft {
            mini_batch: u64::from(row.batch),
            micro_batches: row.micro_batches(),
            data_parallel: DataParallel::ddp(row.data),
            training: Training { precision: PRECISION, ..Training::default() },
            ..Draft::new(Model::Preset(model), preset(), cuts)
        };
        let (plan, prediction) = draft.plan().unwrap();
        Self { row: *row, plan, prediction }
    }

    /// The step on another cluster.
    fn step(&self, cluster: &Cluster) -> Nanos {
        let schedule = self.plan.schedule.parse().unwrap();
        let graph = &self.prediction.graph;
        let graphs = self.plan.training_graphs(&self.plan.inputs(graph, &schedule)).unwrap();
        let costs = Costs::new(graph, cluster, self.plan.samples(), PRECISION);
        let stages: Vec<StageCost> = graphs.iter().map(|g| StageCost::new(g, &costs)).collect();
        let copies = Copies {
            data_parallel: self.plan.data_parallel,
            groups: &self.prediction.groups,
            by_hosts: false,
        };
        simulate(&self.prediction.programs, &stages, cluster, copies).unwrap().step
    }
}

pub(super) fn planned(rows: &[Row]) -> Vec<Planned> {
    rows.iter().map(Planned::new).collect()
}

pub(super) fn errors(rows: &[Planned], cluster: &Cluster) -> Vec<f64> {
    rows.iter().map(|planned| planned.step(cluster).secs() / planned.row.secs - 1.0).collect()
}

/// The preset with other rates of layers that nobody divides.
fn with(values: &[f64]) -> Cluster {
    let mut cluster = preset();
    let rates = cluster.device.transformers.as_mut().unwrap();
    (rates.products, rates.memory, rates.logit_bytes) = (values[0], values[1], values[2]);
    rates.launch_ns = Nanos::from_secs(values[3]);
    cluster
}

/// From round figures, not from the preset's.
fn fitted(rows: &[Planned]) -> (Cluster, Fit) {
    let parameter = |name, start, low, high, advice| Parameter { name, start, low, high, advice };
    let sizes = "measure other hidden sizes and micro-batches";
    let parameters = [
        parameter("products", 0.5, 0.05, 1.0, sizes),
        parameter("memory", 0.7, 0.05, 1.0, sizes),
        parameter("logit_bytes", 50.0, 0.0, 400.0, "measure few and many layers"),
        parameter("launch", 1e-4, 0.0, 0.01, "measure small micro-batches"),
    ];
    let times: Vec<f64> = rows.iter().map(|planned| planned.row.secs).collect();
    let model = |values: &[f64]| {
        let cluster = with(values);
        rows.iter().map(|planned| planned.step(&cluster).secs()).collect()
    };
    let found = fit(&parameters, &times, model).unwrap();
    (with(&found.values()), found)
}

#[test]
fn plans_are_within_three_per_cent_of_rows_that_the_rates_never_saw() {
    let alone: Vec<Row> = rows().into_iter().filter(|row| row.tensor == 1).collect();
    assert_eq!(alone.len(), 313);
    let [odd, even] = halves(&alone).map(|half| planned(&half));
    for planned in &even {
        let step = planned.step(&preset());
        assert_eq!(planned.plan.prediction.step_ns, step, "the plan's own");
    }
    let (found, fit) = fitted(&odd);
    println!("{fit}\n\n| rows | mean error | bias | largest | |\n|---|---|---|---|---|");
    let unseen = errors(&even, &found);
    println!("{} fitted on |\n{} never seen |", cells(&errors(&odd, &found)), cells(&unseen));
    println!("\n| d | p | unseen rows | mean error | bias | largest |\n|---|---|---|---|---|---|");
    for (d, p) in [(1, 2), (1, 4), (2, 1), (2, 2), (2, 4), (4, 1), (4, 2), (8, 1)] {
        let here = even.iter().zip(&unseen);
        let here = here.filter(|(r, _)| (r.row.data, r.row.pipeline) == (d, p));
        println!("| {d} | {p} {}", cells(&here.map(|(_, e)| *e).collect::<Vec<_>>()));
    }
    assert!(mean_absolute(&unseen) <= 0.03);
    assert!(mean_absolute(&errors(&even, &preset())) <= 0.03);
    // The preset is this fit.
    let [of_preset, of_fit] = [preset(), found].map(|c| c.device.transformers.unwrap());
    let near = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 0.01, "{a} for {b}");
    near(of_preset.products, of_fit.products);
    near(of_preset.memory, of_fit.memory);
    near(of_preset.logit_bytes, of_fit.logit_bytes);
    near(of_preset.launch_ns.secs(), of_fit.launch_ns.secs());
}

#[test]
fn the_other_half_gives_nearly_the_same_rates() {
    let alone: Vec<Row> = rows().into_iter().filter(|row| row.tensor == 1).collect();
    let [odd, even] = halves(&alone).map(|half| planned(&half));
    let ((_, a), (other, b)) = (fitted(&odd), fitted(&even));
    for (a, b) in a.estimates.iter().zip(&b.estimates) {
        let apart = (a.value - b.value).abs();
        let deviation = a.deviation.unwrap();
        assert!(apart < 4.0 * deviation, "{}: {apart} apart, deviation {deviation}", a.name);
    }
    assert!(mean_absolute(&errors(&odd, &other)) <= 0.03);
}
