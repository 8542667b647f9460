//! The forms of parallel training side by side: what each device does at a moment of the step, and who
//! sends what to whom then.

use crate::base::texts::{n, t};
use crate::planner::engine::{self, Figures, Ground};
use crate::planner::inputs::Inputs;
use pipewright_core::cost::collective::{Collective, bus_bandwidth, time};
use pipewright_core::cost::forms::{Case, Doing, Form, FormCost, Part, cost};
use pipewright_core::cost::memory::States;
use pipewright_core::cost::{Costs, Workload};
use pipewright_core::ids::LaneId;
use pipewright_core::partition::balanced;
use pipewright_core::units::Nanos;

/// Devices that are drawn.
pub const DEVICES_MAX: u32 = 16;

/// A form that can be looked at, or why it does not apply.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub form: Form,
    pub cost: Result<FormCost, String>,
    /// What Plan says of the same form, with the plan's schedule, recomputation and cuts; only some forms are plans.
    pub plan: Option<Figures>,
}

/// In the order in which they are shown.
const FORMS: [Form; 8] = [
    Form::DataParallel,
    Form::DistributedDataParallel,
    Form::Zero1,
    Form::Zero2,
    Form::TensorParallel,
    Form::ModelParallel,
    Form::Pipeline,
    Form::Hybrid,
];

/// What a form is called, and what it does.
pub fn title(form: Form) -> (&'static str, &'static str) {
    match form {
        Form::Alone => (n("One device"), n("nothing in flight")),
        Form::DataParallel => (
            n("DataParallel"),
            n("one process; device 0 scatters samples and weights, and gathers outputs and \
                 gradients"),
        ),
        Form::DistributedDataParallel => (
            n("DistributedDataParallel"),
            n("one process per device; gradients are summed in buckets during the backward pass"),
        ),
        Form::Zero1 => (
            n("ZeRO-1"),
            n("the same with the optimizer's state sharded: gradients are reduce-scattered, \
               weights all-gathered"),
        ),
        Form::Zero2 => (
            n("ZeRO-2"),
            n("gradients sharded too: each device keeps the sum of its part of a bucket, and the \
               next bucket takes its place"),
        ),
        Form::TensorParallel => (
            n("Tensor parallel"),
            n("every layer is divided; activations and their gradients are summed within it"),
        ),
        Form::ModelParallel => {
            (n("Model parallel"), n("layers are divided, and one device works at a time"))
        }
        Form::Pipeline => {
            (n("Pipeline"), n("layers are divided, and micro-batches keep all devices at work"))
        }
        Form::Hybrid => {
            (n("Pipeline × data"), n("two pipeline replicas; matching stages sum their gradients"))
        }
    }
}

/// All forms of these inputs on so many devices, each priced for one mini-batch or with the reason why it
/// does not apply, a sentence without its full stop.
pub fn rows(inputs: &Inputs, ground: &Ground, devices: u32) -> Vec<Row> {
    let graph = &*ground.network.whole;
    let costs = Costs::new(graph, &ground.cluster, inputs.mini_batch, ground.precision);
    let micro_batches = inputs.micro_batches.min(64);
    let row = |form: Form| {
        let stages = if form == Form::Hybrid { devices / 2 } else { devices };
        let cuts = balanced(graph, &costs, stages.max(1)).map_err(|e| e.to_string());
        let parts = form.parts(devices, 2, micro_batches);
        let cost = cuts.and_then(|cuts| {
            let (cluster, precision) = (&ground.cluster, ground.precision);
            let work = Workload::in_parts(graph, cluster, precision, inputs.mini_batch, parts);
            let work = work.map_err(|e| e.to_string())?;
            let case = Case {
                work: &work,
                layers: Some((graph, ground.precision)),
                cluster: &ground.cluster,
                devices,
                cuts: &cuts,
                micro_batches,
                states: States::MOMENTUM,
            };
            cost(form, &case).map_err(|why| why.to_string())
        });
        Row { form, cost, plan: as_plan(inputs, ground, form, devices) }
    };
    FORMS.into_iter().map(row).collect()
}

/// The figures of a form that a plan can be.
fn as_plan(inputs: &Inputs, ground: &Ground, form: Form, devices: u32) -> Option<Figures> {
    let (stages, replicas) = match form {
        Form::DistributedDataParallel => (1, devices),
        Form::TensorParallel => (1, 1),
        Form::Pipeline => (devices, 1),
        Form::Hybrid if devices.is_multiple_of(2) => (devices / 2, 2),
        _ => return None,
    };
    let mut next = inputs.alone();
    if next.lanes() != stages {
        next.recompute = None;
        engine::split(&mut next, stages);
    }
    next.rest.data_parallel = next.rest.data_parallel.with_replicas(replicas).with_experts(1);
    next.rest.tensor = if form == Form::TensorParallel { devices } else { 1 };
    let ground = Ground::near(&next, ground);
    let solved = engine::solve(&next, &ground).ok()?;
    Some(solved.figures)
}

/// What a device does at a moment; none: it is idle. Work hides communication beside it.
pub fn doing(cost: &FormCost, device: u32, at: Nanos) -> Option<Doing> {
    let here = |part: &&Part| part.device == device && part.start <= at && at < part.end;
    cost.parts.iter().filter(here).map(|part| part.doing).min_by_key(|doing| match doing {
        Doing::Communication => 1,
        _ => 0,
    })
}

/// What travels at a moment: pairs of devices, and what it is called.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Travel {
    pub pairs: Vec<(u32, u32)>,
    pub name: &'static str,
}

/// Who sends to whom at a moment of the step.
pub fn travel(cost: &FormCost, at: Nanos) -> Travel {
    match cost.form {
        Form::Alone => Travel::default(),
        Form::DataParallel => through_the_first(cost, at),
        Form::DistributedDataParallel | Form::Zero1 | Form::Zero2 | Form::TensorParallel => {
            around(cost, at)
        }
        Form::ModelParallel | Form::Pipeline | Form::Hybrid => across(cost, at),
    }
}

/// Scatter and broadcast leave device 0, gather and reduce come back to it.
fn through_the_first(cost: &FormCost, at: Nanos) -> Travel {
    let mut sums = cost.parts.iter().filter(|p| p.device == 0 && p.doing == Doing::Communication);
    let Some(which) = sums.position(|part| part.start <= at && at < part.end) else {
        return Travel::default();
    };
    let others = 1..cost.devices;
    let (out, name) = match which {
        0 => (true, n("scatter samples")),
        1 => (true, n("broadcast weights")),
        2 => (false, n("gather outputs")),
        _ => (false, n("reduce gradients")),
    };
    let pairs = others.map(|other| if out { (0, other) } else { (other, 0) }).collect();
    Travel { pairs, name }
}

/// Collectives of all go around a ring.
fn around(cost: &FormCost, at: Nanos) -> Travel {
    let part = cost.parts.iter().find(|part| {
        part.device == 0 && part.doing == Doing::Communication && part.start <= at && at < part.end
    });
    let Some(part) = part else { return Travel::default() };
    let updated = cost.parts.iter().any(|p| p.doing == Doing::Update && p.end <= part.start);
    let backward = cost.parts.iter().any(|p| p.doing == Doing::Backward && p.end <= part.start);
    let name = match (cost.form, updated) {
        (Form::TensorParallel, _) if !backward => n("all-reduce activations"),
        (Form::Zero1 | Form::Zero2, true) => n("all-gather weights"),
        (Form::Zero1 | Form::Zero2, false) => n("reduce-scatter gradients"),
        _ => n("all-reduce gradients"),
    };
    let count = cost.devices;
    Travel { pairs: (0..count).map(|device| (device, (device + 1) % count)).collect(), name }
}

/// Messages between neighbours: from the end of what made them to the begin of what needs them; and the
/// sums of copies.
fn across(cost: &FormCost, at: Nanos) -> Travel {
    let stages = match cost.form {
        Form::Hybrid => cost.devices / 2,
        _ => cost.devices,
    };
    let summed =
        |part: &&Part| part.doing == Doing::Communication && part.start <= at && at < part.end;
    let sums: Vec<(u32, u32)> = cost
        .parts
        .iter()
        .filter(summed)
        .map(|part| (part.device, (part.device + stages) % cost.devices))
        .collect();
    if !sums.is_empty() {
        return Travel { pairs: sums, name: n("all-reduce gradients") };
    }
    let mut found = Travel::default();
    for (doing, name) in [(Doing::Forward, n("activations")), (Doing::Backward, n("gradients"))] {
        for device in 0..cost.devices {
            let stage = device % stages;
            let next = match doing {
                Doing::Forward if stage + 1 < stages => device + 1,
                Doing::Backward if stage > 0 => device - 1,
                _ => continue,
            };
            let made = runs(cost, device, doing).filter(|part| part.end <= at).count();
            let used = runs(cost, next, doing).filter(|part| part.start <= at).count();
            if made > used {
                found.pairs.push((device, next));
                found.name = name;
            }
        }
    }
    found
}

fn runs(cost: &FormCost, device: u32, doing: Doing) -> impl Iterator<Item = &Part> {
    cost.parts.iter().filter(move |part| part.device == device && part.doing == doing)
}

/// Moments at which something else begins, ascending; the first is 0.
pub fn moments(cost: &FormCost) -> Vec<Nanos> {
    let mut all: Vec<Nanos> = cost.parts.iter().flat_map(|part| [part.start, part.end]).collect();
    all.push(Nanos::ZERO);
    all.sort_unstable();
    all.dedup();
    all
}

/// A collective of the model's gradients over all devices: name, seconds, bus bandwidth.
pub fn collectives(ground: &Ground, devices: u32) -> Vec<(&'static str, Nanos, f64)> {
    const ALL: [(Collective, &str); 8] = [
        (Collective::Broadcast, n("broadcast")),
        (Collective::Scatter, n("scatter")),
        (Collective::Gather, n("gather")),
        (Collective::Reduce, n("reduce")),
        (Collective::AllReduce, n("all-reduce")),
        (Collective::AllGather, n("all-gather")),
        (Collective::ReduceScatter, n("reduce-scatter")),
        (Collective::AllToAll, n("all-to-all")),
    ];
    let bytes = ground.graph.trainable_elements() as f64 * 4.0;
    let link = ground.cluster.collective_link(LaneId(0), LaneId(devices.saturating_sub(1)));
    let row = |(what, name): (Collective, &'static str)| {
        let secs = time(what, devices, bytes, link);
        (name, Nanos((secs * 1e9) as u64), bus_bandwidth(what, devices, bytes, secs))
    };
    ALL.into_iter().map(row).collect()
}

/// What a person hears of a moment.
pub fn says(cost: &FormCost, at: Nanos) -> String {
    let travel = travel(cost, at);
    if !travel.pairs.is_empty() {
        return t(travel.name).to_owned();
    }
    let busy = |what: Doing| (0..cost.devices).any(|d| doing(cost, d, at) == Some(what));
    let name = match (busy(Doing::Forward), busy(Doing::Backward), busy(Doing::Update)) {
        (true, ..) => t("forward"),
        (_, true, _) => t("backward"),
        (.., true) => t("update"),
        _ if at >= cost.step => t("step done"),
        _ => "",
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planner::presets::{EXAMPLES, first};

    fn all(devices: u32) -> Vec<FormCost> {
        let inputs = first();
        rows(&inputs, &Ground::of(&inputs), devices).into_iter().map(|r| r.cost.unwrap()).collect()
    }

    #[test]
    fn every_form_of_every_example_is_priced_or_says_why() {
        for example in &EXAMPLES {
            let inputs = example.inputs();
            for devices in [2, 3, 4, 8] {
                for row in rows(&inputs, &Ground::of(&inputs), devices) {
                    match row.cost {
                        Ok(cost) => assert!(cost.step > Nanos::ZERO && !moments(&cost).is_empty()),
                        Err(why) => assert!(
                            devices == 3
                                || why.contains("stages need as many layers")
                                || why.contains("tensor parallelism divides"),
                            "{why}"
                        ),
                    }
                }
            }
        }
    }

    #[test]
    fn plans_among_the_forms_have_plans_figures() {
        let inputs = first();
        let ground = Ground::of(&inputs);
        let solved = engine::solve(&inputs, &ground).unwrap();
        let rows = rows(&inputs, &ground, inputs.lanes());
        let of = |form: Form| rows.iter().find(|row| row.form == form).unwrap().plan;
        assert_eq!(of(Form::Pipeline), Some(solved.figures), "this very plan");
        let ddp = of(Form::DistributedDataParallel).unwrap();
        assert!(ddp.bubble < 0.2 && ddp.traffic.0 > 0, "{ddp:?}");
        assert!(of(Form::Hybrid).is_some() && of(Form::DataParallel).is_none());
    }

    #[test]
    fn the_first_device_hands_out_and_takes_back() {
        let cost = &all(4)[0];
        let seen: Vec<Travel> = moments(cost).into_iter().map(|at| travel(cost, at)).collect();
        let mut names: Vec<&str> =
            seen.iter().filter(|t| !t.pairs.is_empty()).map(|t| t.name).collect();
        names.dedup();
        assert_eq!(
            names,
            ["scatter samples", "broadcast weights", "gather outputs", "reduce gradients"]
        );
        assert_eq!(seen[0].pairs, [(0, 1), (0, 2), (0, 3)]);
    }

    #[test]
    fn neighbours_talk_in_a_pipeline_and_twins_at_its_end() {
        let costs = all(4);
        let of = |form: Form| costs.iter().find(|cost| cost.form == form).unwrap();
        let (pipeline, tensor) = (of(Form::Pipeline), of(Form::TensorParallel));
        let pairs = |cost: &FormCost| -> Vec<(u32, u32)> {
            moments(cost).into_iter().flat_map(|at| travel(cost, at).pairs).collect()
        };
        assert!(pairs(pipeline).iter().all(|(a, b)| a.abs_diff(*b) == 1));
        assert!(pairs(pipeline).contains(&(0, 1)) && pairs(pipeline).contains(&(3, 2)));
        assert!(pairs(of(Form::Hybrid)).contains(&(0, 2)), "twins sum their gradients");
        let ring = pairs(of(Form::DistributedDataParallel));
        assert!(ring.contains(&(3, 0)) && !ring.contains(&(0, 3)), "a ring has a direction");
        let names = |cost: &FormCost| -> Vec<&str> {
            let all = moments(cost).into_iter().map(|at| travel(cost, at).name);
            all.filter(|name| !name.is_empty()).collect()
        };
        for form in [Form::Zero1, Form::Zero2] {
            let names = names(of(form));
            assert!(names.starts_with(&["reduce-scatter gradients"]), "{names:?}");
            assert_eq!(names.last(), Some(&"all-gather weights"));
        }
        assert_eq!(names(tensor), ["all-reduce activations", "all-reduce gradients"]);
        assert_eq!(names(tensor).len() as u64, tensor.communications);
    }

    #[test]
    fn a_device_does_one_thing_and_at_last_nothing() {
        for cost in all(4) {
            assert!((0..4).all(|device| doing(&cost, device, cost.step).is_none()));
            assert_eq!(says(&cost, cost.step), "step done");
        }
        let inputs = first();
        let found = collectives(&Ground::of(&inputs), 4);
        assert_eq!(found.len(), 8);
        assert!(found.iter().all(|(_, time, speed)| time.0 > 0 && *speed > 0.0));
    }
}
