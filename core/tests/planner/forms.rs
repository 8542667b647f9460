//! Parallel forms against slow twins and limits.

use pipewright_core::cost::forms::{
    Case, Doing, Form, FormCost, FormError, bucket_ends, buckets, cost,
};
use pipewright_core::cost::memory::{Sharding, States};
use pipewright_core::cost::{Cluster, Costs, Edge, Item, Workload};
use pipewright_core::graph::Precision;
use pipewright_core::graph::presets::Preset;
use pipewright_core::plan::{Draft, Model};
use pipewright_core::schedule::ScheduleKind;
use pipewright_core::units::{Bytes, Nanos};
use proptest::prelude::*;

const MIB: u64 = 1 << 20;

/// A chain of items: forward and backward microseconds, output and parameter bytes.
fn chain(items: &[(u64, u64, u64, u64)]) -> Workload {
    let item =
        |(i, (forward, backward, output, parameters)): (usize, &(u64, u64, u64, u64))| Item {
            name: format!("item{i}"),
            forward: Nanos(1000 * forward),
            backward_input: Nanos(1000 * backward),
            output: Bytes(*output),
            stash: Bytes(*output),
            parameters: Bytes(4 * parameters),
            ..Item::default()
        };
    let edge = |to: u32| Edge { to, from: to - 1, bytes: Bytes(items[to as usize - 1].2) };
    Workload {
        name: "chain".into(),
        samples: 64,
        items: items.iter().enumerate().map(item).collect(),
        edges: (1..items.len() as u32).map(edge).collect(),
        ..Workload::default()
    }
}

fn machine() -> Cluster {
    Cluster::preset("dgx-a100").unwrap()
}

fn row(form: Form, work: &Workload, devices: u32, cuts: &[u32], m: u32) -> FormCost {
    let cluster = machine();
    let states = States::MOMENTUM;
    let layers = None;
    let case = Case { work, layers, cluster: &cluster, devices, cuts, micro_batches: m, states };
    cost(form, &case).unwrap()
}

fn small() -> Workload {
    chain(&[(100, 200, 4000, 300_000), (300, 500, 9000, 2_000_000), (200, 400, 400, 9_000_000)])
}

/// Bucket ends by walking through time one nanosecond after the other.
fn tick_by_tick(items: &[(Nanos, Bytes)], time: impl Fn(Bytes) -> Nanos) -> Vec<Nanos> {
    let mut queue = std::collections::VecDeque::new();
    let (mut waiting, mut first): (u64, bool) = (0, true);
    let mut left: Vec<(u64, u64)> = items.iter().map(|(t, b)| (t.0, b.0)).collect();
    let mut sending: Option<u64> = None;
    let (mut ends, mut now) = (vec![], 0);
    loop {
        // What is finished at this moment.
        while left.last().is_some_and(|(rest, _)| *rest == 0) {
            waiting += left.pop().unwrap().1;
            let cap = if first { MIB } else { 25 * MIB };
            let none_left = left.iter().all(|(_, bytes)| *bytes == 0);
            if waiting >= cap || (waiting > 0 && none_left) {
                queue.push_back(std::mem::take(&mut waiting));
                first = false;
            }
        }
        loop {
            if sending == Some(0) {
                ends.push(Nanos(now));
                sending = None;
            }
            if sending.is_none()
                && let Some(bytes) = queue.pop_front()
            {
                sending = Some(time(Bytes(bytes)).0);
                if sending == Some(0) {
                    continue;
                }
            }
            break;
        }
        if left.is_empty() && sending.is_none() && queue.is_empty() {
            return ends;
        }
        now += 1;
        if let Some((rest, _)) = left.last_mut() {
            *rest -= 1;
        }
        sending = sending.map(|rest| rest - 1);
    }
}

/// End of the pipeline's last computation by following dependencies from the end, without any
/// order of evaluation.
fn longest_path(stages: &[(u64, u64)], hop: u64, m: usize) -> u64 {
    fn end(s: usize, j: usize, back: bool, x: &(&[(u64, u64)], u64, usize)) -> u64 {
        let (stages, hop, m) = *x;
        let mut ready = 0;
        if back {
            ready = ready.max(if j > 0 { end(s, j - 1, true, x) } else { end(s, m - 1, false, x) });
            if s + 1 < stages.len() {
                ready = ready.max(end(s + 1, j, true, x) + hop);
            }
            ready + stages[s].1
        } else {
            if j > 0 {
                ready = ready.max(end(s, j - 1, false, x));
            }
            if s > 0 {
                ready = ready.max(end(s - 1, j, false, x) + hop);
            }
            ready + stages[s].0
        }
    }
    let x = (stages, hop, m);
    (0..stages.len()).map(|s| end(s, m - 1, true, &x)).max().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn buckets_end_when_the_slow_twin_says(
        items in prop::collection::vec((0u64..60, 0u64..40), 1..20), speed in 1u64..8, start in 0u64..9,
    ) {
        let items: Vec<_> = items.iter().map(|(t, b)| (Nanos(*t), Bytes(b * MIB))).collect();
        let time = |bytes: Bytes| Nanos(start + bytes.0 / MIB / speed);
        let ends: Vec<_> = bucket_ends(&buckets(&items), time).iter().map(|(_, end)| *end).collect();
        prop_assert_eq!(ends, tick_by_tick(&items, time));
        let all: Bytes = items.iter().map(|(_, b)| *b).sum();
        prop_assert_eq!(buckets(&items).iter().map(|(_, b)| *b).sum::<Bytes>(), all);
    }

    #[test]
    fn a_pipeline_takes_the_longest_path(
        times in prop::collection::vec((1u64..50, 1u64..90), 1..5), m in 1usize..4,
    ) {
        let work = chain(&times.iter().map(|(f, b)| (f * 12, b * 12, 1000, 0)).collect::<Vec<_>>());
        let cuts: Vec<u32> = (1..times.len() as u32).collect();
        let found = row(Form::Pipeline, &work, times.len() as u32, &cuts, m as u32);
        let hop = machine().local.time(Bytes(1000u64.div_ceil(m as u64))).0;
        let stages: Vec<_> =
            times.iter().map(|(f, b)| (12_000 * f / m as u64, 12_000 * b / m as u64)).collect();
        prop_assert_eq!(found.step.0, longest_path(&stages, hop, m));
    }

    #[test]
    fn overlap_hides_no_more_than_the_shorter(
        items in prop::collection::vec((1u64..900, 1u64..900, 100u64..9000, 1u64..3_000_000), 1..9),
        devices in 2u32..40,
    ) {
        let work = chain(&items);
        let found = row(Form::DistributedDataParallel, &work, devices, &[], 1);
        let time = |doing| -> u64 {
            found.parts.iter().filter(|p| p.device == 0 && p.doing == doing)
                .map(|p| p.end.0 - p.start.0).sum()
        };
        let (sums, update) = (time(Doing::Communication), time(Doing::Update));
        let compute = time(Doing::Forward) + time(Doing::Backward);
        prop_assert!(found.step.0 >= (compute.max(time(Doing::Forward) + sums)) + update);
        prop_assert!(found.step.0 <= compute + sums + update);
        // Computation of one device never overlaps itself.
        let mut busy: Vec<_> = found.parts.iter()
            .filter(|p| p.device == 0 && p.doing != Doing::Communication).collect();
        busy.sort_by_key(|p| p.start);
        prop_assert!(busy.windows(2).all(|pair| pair[0].end <= pair[1].start));
    }
}

#[test]
fn one_device_computes_and_nothing_else() {
    let work = small();
    let alone = row(Form::Alone, &work, 1, &[], 1);
    assert!(alone.step >= work.time() && alone.communications == 0);
    for form in [Form::DataParallel, Form::DistributedDataParallel, Form::Zero1, Form::Pipeline] {
        let one = row(form, &work, 1, &[], 1);
        assert_eq!(
            (one.step, one.peak, one.traffic),
            (alone.step, alone.peak, Bytes(0)),
            "{form:?}"
        );
        assert_eq!(one.communications, 0);
    }
}

#[test]
fn model_parallel_is_one_device_at_a_time() {
    let work = small();
    let found = row(Form::ModelParallel, &work, 3, &[1, 2], 7);
    let computing: Nanos =
        found.parts.iter().filter(|p| p.doing != Doing::Update).map(|p| p.end - p.start).sum();
    assert_eq!(computing, work.time());
    let hops = machine().local.time(Bytes(4000)) + machine().local.time(Bytes(9000));
    // The last to update is the first stage, which ends its backward pass last.
    let last = found.parts.iter().filter(|p| p.device == 0).map(|p| p.end).max().unwrap();
    let update = found.parts.iter().rfind(|p| p.device == 0 && p.doing == Doing::Update).unwrap();
    assert_eq!(last, update.end);
    assert_eq!(update.start, work.time() + hops + hops);
    assert_eq!(found.communications, 4);
    assert_eq!(found.traffic, Bytes(2 * (4000 + 9000)));
}

#[test]
fn forms_compare_as_their_authors_say() {
    // A network with much computation per parameter.
    let items = [(40_000, 80_000, 4_000_000, 500_000); 8];
    let work = chain(&items);
    let alone = row(Form::Alone, &work, 1, &[], 1);
    let dp = row(Form::DataParallel, &work, 4, &[], 1);
    let ddp = row(Form::DistributedDataParallel, &work, 4, &[], 1);
    let zero = row(Form::Zero1, &work, 4, &[], 1);
    let naive = row(Form::ModelParallel, &work, 4, &[2, 4, 6], 1);
    let pipeline = row(Form::Pipeline, &work, 4, &[2, 4, 6], 8);
    let hybrid = row(Form::Hybrid, &work, 8, &[2, 4, 6], 8);
    assert_eq!(dp.communications, 4);
    assert!(ddp.step < dp.step && dp.step < alone.step);
    assert!(naive.step > alone.step - Nanos(10_000_000), "dividing layers alone gains nothing");
    assert!(pipeline.step < naive.step && ddp.step < pipeline.step);
    assert!(hybrid.step < pipeline.step);
    assert!(zero.peak < ddp.peak && pipeline.peak < zero.peak);
    assert_eq!(zero.traffic, ddp.traffic);
    // Ideal bubble of 8 micro-batches on 4 stages: 11 / 8 of a quarter.
    let ideal = alone.step.secs() / 4.0 * 11.0 / 8.0;
    assert!((pipeline.step.secs() / ideal - 1.0).abs() < 0.05, "{} {ideal}", pipeline.step);
}

#[test]
fn one_replica_is_a_pipeline_and_skips_are_sent() {
    let mut work = small();
    let plain = row(Form::Pipeline, &work, 3, &[1, 2], 4);
    let hybrid = row(Form::Hybrid, &work, 3, &[1, 2], 4);
    assert_eq!(FormCost { form: Form::Pipeline, ..hybrid }, plain);
    work.edges.push(Edge { to: 2, from: 0, bytes: Bytes(4000) });
    let skip = row(Form::Pipeline, &work, 3, &[1, 2], 4);
    assert_eq!(skip.communications, plain.communications + 8);
    assert_eq!(skip.traffic, plain.traffic + Bytes(8000));
}

#[test]
fn memory_is_what_the_states_say() {
    let work = small();
    let cluster = machine();
    let case = Case {
        work: &work,
        layers: None,
        cluster: &cluster,
        devices: 4,
        cuts: &[],
        micro_batches: 1,
        states: States::MOMENTUM,
    };
    let elements = work.parameters().0 / 4;
    let stash = work.items.iter().map(|i| i.stash).sum::<Bytes>().0.div_ceil(4);
    let ddp = cost(Form::DistributedDataParallel, &case).unwrap();
    assert_eq!(ddp.peak.0, 12 * elements + stash);
    let zero = cost(Form::Zero1, &case).unwrap();
    assert_eq!(zero.peak.0, 8 * elements + 4 * elements.div_ceil(4) + stash);
    let adam = Case { states: States { sharding: Sharding::Whole, ..States::ADAM }, ..case };
    let half = cost(Form::DistributedDataParallel, &adam).unwrap();
    assert_eq!(half.peak.0, 16 * (work.parameters().0 / 2) + stash, "2 bytes a weight");
}

/// The plan of one lane whose tensor group is all devices: its sums, its traffic, its passes.
#[test]
fn tensor_parallel_is_the_plan_of_one_group() {
    let cluster = machine();
    for (preset, devices) in [(Preset::Gpt2, 4), (Preset::Llama7b, 8), (Preset::Vgg16, 2)] {
        let mut draft = Draft::new(Model::Preset(preset), cluster.clone(), vec![]);
        (draft.mini_batch, draft.micro_batches, draft.tensor) = (8, 1, devices);
        draft.schedule = ScheduleKind::GPipe;
        let (_, plan) = draft.plan().unwrap();
        let graph = preset.graph().unwrap();
        let costs = Costs::new(&graph, &cluster, 8, Precision::F32);
        let work = Workload::of(&graph, &costs);
        let case = Case {
            work: &work,
            layers: Some((&graph, Precision::F32)),
            cluster: &cluster,
            devices,
            cuts: &[],
            micro_batches: 1,
            states: States::MOMENTUM,
        };
        let form = cost(Form::TensorParallel, &case).unwrap();
        assert_eq!(form.traffic, plan.timeline.traffic(), "{preset}");
        let of = |doing| form.parts.iter().filter(move |p| (p.device, p.doing) == (0, doing));
        let time = |doing| of(doing).map(|p| p.end.0 - p.start.0).sum::<u64>();
        let passes: u64 =
            [Doing::Forward, Doing::Backward, Doing::Communication].map(time).iter().sum();
        let stage = &plan.stages[0];
        assert_eq!(passes, (stage.forward + stage.backward()).0, "{preset}");
        let kernels = plan.programs[0].stages.iter().flat_map(|stage| &stage.kernels);
        assert_eq!(form.communications, kernels.filter(|kernel| kernel.reduces).count() as u64);
        assert!(form.peak < cost(Form::Alone, &case).unwrap().peak);
        let profile = cost(Form::TensorParallel, &Case { layers: None, ..case });
        assert_eq!(profile, Err(FormError::NoLayers));
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let work = small();
    let cluster = machine();
    let case = Case {
        work: &work,
        layers: None,
        cluster: &cluster,
        devices: 3,
        cuts: &[1, 2],
        micro_batches: 4,
        states: States::MOMENTUM,
    };
    let refused = |form, case: Case| cost(form, &case).unwrap_err();
    assert_eq!(refused(Form::Alone, Case { devices: 0, ..case }), FormError::Zero("devices"));
    assert_eq!(
        refused(Form::Pipeline, Case { micro_batches: 0, ..case }),
        FormError::Zero("micro_batches")
    );
    for cuts in [[2, 1], [0, 1], [1, 3], [1, 1]] {
        let refused = refused(Form::Pipeline, Case { cuts: &cuts, ..case });
        assert_eq!(refused, FormError::Cuts(cuts.to_vec(), 3));
    }
    let message = refused(Form::Pipeline, Case { devices: 4, ..case }).to_string();
    assert_eq!(message, "4 devices for 3 stages: as many as stages");
    assert!(refused(Form::Hybrid, Case { devices: 4, ..case }).to_string().contains("multiple"));
    assert!(cost(Form::Hybrid, &Case { devices: 6, ..case }).is_ok());
    let empty = Workload::default();
    for form in [Form::Alone, Form::DataParallel, Form::DistributedDataParallel, Form::Zero1] {
        assert_eq!(
            cost(form, &Case { work: &empty, cuts: &[], ..case }).unwrap().traffic,
            Bytes(0)
        );
    }
}
