//! Rows with tensor parallelism: the search's estimates of plans that no file holds.

use super::{PRECISION, Row, cells, halves, mean_absolute, plans, preset, rows};
use pipewright_core::cost::calibrate::{Fit, Parameter, fit};
use pipewright_core::cost::memory::States;
use pipewright_core::cost::{Cluster, Costs, MeasuredLayer, Workload};
use pipewright_core::graph::Graph;
use pipewright_core::predict::search::{Fixed, Search, Space};
use pipewright_core::schedule::ScheduleKind;
use pipewright_core::units::{Bytes, Nanos};
use std::collections::BTreeMap;

/// Layers, hidden size and samples of a micro-batch.
type Size = [u32; 3];

fn size(row: &Row) -> Size {
    [row.layers, row.hidden, row.micro_batch]
}

/// Every network and size of micro-batch of the rows.
fn networks(rows: &[Row]) -> BTreeMap<Size, Graph> {
    rows.iter().map(|row| (size(row), row.preset().graph().unwrap())).collect()
}

/// What the search takes, on `cluster`.
fn works(networks: &BTreeMap<Size, Graph>, cluster: &Cluster) -> BTreeMap<Size, Workload> {
    let work = |(size, graph): (&Size, &Graph)| {
        let costs = Costs::new(graph, cluster, size[2].into(), PRECISION);
        let work = Workload::of_training(graph, &costs, PRECISION);
        (*size, work.divided(graph, &cluster.device, PRECISION))
    };
    networks.iter().map(work).collect()
}

/// The search's step of a row, with as many blocks on each stage.
fn secs(row: &Row, graph: &Graph, work: &Workload, cluster: &Cluster) -> f64 {
    let model = |_| work.clone();
    let ranks = row.tensor * row.data * row.pipeline;
    let space = Space {
        model: &model,
        blocks: std::iter::once(0).chain(row.cuts(graph)).collect(),
        cluster: cluster.clone(),
        devices: ranks,
        memory: Bytes(1 << 50),
        mini_batch: row.batch.into(),
        states: States::MOMENTUM,
        parameter_bytes: 4,
        fixed: Fixed {
            ranks: Some(ranks),
            lanes: Some(row.pipeline),
            replicas: Some(row.data),
            tensor: Some(row.tensor),
            micro_batches: Some(row.micro_batches()),
            schedule: Some(ScheduleKind::OneFOneB),
            recompute: Some(false),
            encoding: Some(None),
            ..Fixed::default()
        },
        encodings: vec![],
        seed: 1,
    };
    let mut search = Search::new(&space).unwrap();
    search.advance(1).unwrap();
    search.front().fastest().unwrap().step.secs()
}

fn predicted(rows: &[Row], networks: &BTreeMap<Size, Graph>, cluster: &Cluster) -> Vec<f64> {
    let works = works(networks, cluster);
    let secs = |row: &Row| secs(row, &networks[&size(row)], &works[&size(row)], cluster);
    rows.iter().map(secs).collect()
}

fn errors(rows: &[Row], cluster: &Cluster) -> Vec<f64> {
    let predicted = predicted(rows, &networks(rows), cluster);
    predicted.iter().zip(rows).map(|(secs, row)| secs / row.secs - 1.0).collect()
}

/// The preset with other rates of divided layers, which [`PARAMETERS`] names: a sum's start-up is that among
/// two, and so much longer with each doubling. Bandwidths are those of vTrain's all-reduces of 1 GiB.
fn with(values: &[f64]) -> Cluster {
    let mut cluster = preset();
    let rates = cluster.device.transformers.as_mut().unwrap();
    rates.unfused_ns = Nanos::from_secs(values[1]);
    rates.attention[0].more_ns = Nanos::from_secs(values[2]);
    rates.divided_logit_bytes = Some(values[3]);
    rates.tensor.iter_mut().for_each(|divided| divided.layers.clear());
    for (divided, launch) in rates.tensor.iter_mut().zip(&values[4..]) {
        let messages = 2.0 * f64::from(divided.degree - 1);
        let start = values[0] * f64::from(divided.degree.ilog2());
        divided.link.latency_ns = Nanos::from_secs(start / messages);
        divided.launch_ns = Nanos::from_secs(*launch);
    }
    cluster
}

/// Names, starts and upper bounds.
const PARAMETERS: [(&str, f64, f64); 7] = [
    ("start", 3e-4, 0.01),
    ("unfused", 5e-4, 0.01),
    ("attention of 16", 5e-4, 0.01),
    ("logit_bytes", 50.0, 400.0),
    ("launch of 2", 1.2e-4, 0.01),
    ("launch of 4", 1.2e-4, 0.01),
    ("launch of 8", 1.5e-4, 0.01),
];

/// The parameters at `free` by `rows`, the others at their starts.
fn fitted(rows: &[Row], free: &[usize]) -> (Cluster, Fit) {
    let parameter = |at: &usize| {
        let (name, start, high) = PARAMETERS[*at];
        let advice = "measure other tensor-parallel degrees and micro-batches";
        Parameter { name, start, low: 0.0, high, advice }
    };
    let parameters: Vec<Parameter> = free.iter().map(parameter).collect();
    let all = |values: &[f64]| {
        let mut all = PARAMETERS.map(|(_, start, _)| start);
        free.iter().zip(values).for_each(|(at, value)| all[*at] = *value);
        with(&all)
    };
    let times: Vec<f64> = rows.iter().map(|row| row.secs).collect();
    let networks = networks(rows);
    let found = fit(&parameters, &times, |values| predicted(rows, &networks, &all(values)));
    let found = found.unwrap();
    (all(&found.values()), found)
}

/// Degree, hidden size and samples of a micro-batch.
fn cell(row: &Row) -> [u32; 3] {
    [row.tensor, row.hidden, row.micro_batch]
}

/// The cluster with a factor for the layers of each degree and size in `rows`: the one for which the
/// mean error of its rows is nothing.
fn with_layers(mut cluster: Cluster, rows: &[Row]) -> Cluster {
    // Not all of a step is layers, so the factor is found in a few steps.
    for _ in 0..8 {
        let mut ratios = BTreeMap::<[u32; 3], Vec<f64>>::new();
        for (row, error) in rows.iter().zip(errors(rows, &cluster)) {
            ratios.entry(cell(row)).or_default().push(1.0 / (1.0 + error));
        }
        let rates = cluster.device.transformers.as_mut().unwrap();
        for ([tensor, hidden, samples], ratios) in ratios {
            let mut degrees = rates.tensor.iter_mut();
            let divided = degrees.find(|divided| divided.degree == tensor).unwrap();
            let (hidden, positions) = (u64::from(hidden), 1024 * u64::from(samples));
            let ratio = ratios.iter().sum::<f64>() / ratios.len() as f64;
            let mut layers = divided.layers.iter_mut();
            match layers.find(|layer| (layer.hidden, layer.positions) == (hidden, positions)) {
                Some(layer) => layer.factor *= ratio,
                None => {
                    divided.layers.push(MeasuredLayer { hidden, positions, factor: ratio });
                }
            }
        }
    }
    cluster
}

#[test]
fn the_search_tells_what_tensor_parallelism_takes() {
    let (alone, divided): (Vec<Row>, Vec<Row>) = rows().into_iter().partition(|r| r.tensor == 1);
    assert_eq!(divided.len(), 407);
    let [seen, unseen] = halves(&divided);
    let (rates, fit) = fitted(&seen, &[0, 1, 2, 3, 4, 5, 6]);
    let found = with_layers(rates.clone(), &seen);
    println!("{fit}\n\n| rows | mean error | bias | largest | |\n|---|---|---|---|---|");
    let by_rates = errors(&unseen, &rates);
    println!("{} never seen, by rates alone |", cells(&by_rates));
    let of_unseen = errors(&unseen, &found);
    println!("{} fitted on |\n{} never seen |", cells(&errors(&seen, &found)), cells(&of_unseen));
    for t in [2, 4, 8] {
        let here = unseen.iter().zip(&of_unseen).filter(|(row, _)| row.tensor == t);
        println!("{} t = {t}, never seen |", cells(&here.map(|(_, e)| *e).collect::<Vec<_>>()));
    }
    let of_plans = plans::errors(&plans::planned(&halves(&alone)[1]), &found);
    let all = |divided: &[f64]| [of_plans.as_slice(), divided].concat();
    println!("{} all degrees, never seen |", cells(&all(&of_unseen)));
    println!("{} all degrees, never seen, by rates alone |", cells(&all(&by_rates)));
    assert!(mean_absolute(&of_unseen) <= 0.03 && mean_absolute(&by_rates) <= 0.05);
    assert!(mean_absolute(&errors(&unseen, &preset())) <= 0.03);
    // The preset is this fit.
    let [of_preset, of_fit] = [preset(), found].map(|c| c.device.transformers.unwrap());
    let near = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 0.01, "{a} for {b}");
    near(of_preset.unfused_ns.secs(), of_fit.unfused_ns.secs());
    for (preset, fit) in of_preset.tensor.iter().zip(&of_fit.tensor) {
        near(preset.launch_ns.secs(), fit.launch_ns.secs());
        near(preset.link.latency_ns.secs(), fit.link.latency_ns.secs());
        assert_eq!(preset.layers.len(), fit.layers.len());
        for (preset, fit) in preset.layers.iter().zip(&fit.layers) {
            assert_eq!((preset.hidden, preset.positions), (fit.hidden, fit.positions));
            near(preset.factor, fit.factor);
        }
    }
}

/// That 16 matrices are slow is in the rows of each degree alone, so it is no residual of some sizes.
#[test]
fn attention_of_sixteen_matrices_is_slow_at_every_degree() {
    let divided: Vec<Row> = rows().into_iter().filter(|row| row.tensor > 1).collect();
    let [seen, _] = halves(&divided);
    let (two, more): (Vec<Row>, Vec<Row>) = seen.into_iter().partition(|row| row.tensor == 2);
    let found = [fitted(&two, &[0, 2, 3, 4]).1, fitted(&more, &[0, 1, 2, 3, 5, 6]).1].map(|fit| {
        println!("{fit}");
        let mut all = fit.estimates.iter();
        let of_16 = all.find(|estimate| estimate.name == PARAMETERS[2].0).unwrap();
        let deviation = of_16.deviation.unwrap();
        assert!(of_16.value > 5.0 * deviation, "{} with a deviation of {deviation}", of_16.value);
        of_16.value
    });
    assert!((0.5..2.0).contains(&(found[0] / found[1])), "{found:?}");
}
