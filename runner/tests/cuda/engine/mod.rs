//! Training on a GPU's kernels: ranks whose device is the emulator of kernels, or a GPU where there is
//! one, train as those of the processor do, up to the order of sums.

mod channels_last;
mod fp8;
mod golden;
mod layers;
mod precisions;
mod tensor_groups;

use crate::common::{draft, draft_of, networks};
use crate::emulator;
use crate::graphs::emulated::Emulated;
use golden::compute;
use pipewright_core::plan::{Plan, Precision, Program};
use pipewright_core::predict::predict;
use pipewright_runner::data::{DataSet, open};
use pipewright_runner::device::Accelerator;
use pipewright_runner::device::cuda::{Driver, Engine, Gpu, GraphReplay, gpus};
use pipewright_runner::execute::Rank;
use pipewright_runner::transport::Transport;
use pipewright_runner::transport::local::{LocalTransport, local};

/// Losses of all steps, and all that lasts after the last, by rank.
type Trained = Vec<(Vec<f64>, Vec<(String, Vec<f32>)>)>;

/// Makes the device of a rank.
type Make<'a> = dyn Fn(&Program) -> Box<dyn Accelerator> + Sync + 'a;

fn emulated(program: &Program) -> Box<dyn Accelerator> {
    Box::new(Engine::new(Emulated::default(), program.tensors(), "a rank").unwrap())
}

fn train(plan: &Plan, make: Option<&Make>) -> Trained {
    train_and(plan, make, &|_, _| ())
}

/// The same, with something that happens to each rank before each step.
fn train_and(
    plan: &Plan,
    make: Option<&Make>,
    before: &(dyn Fn(&mut Rank<LocalTransport>, u64) + Sync),
) -> Trained {
    let prediction = predict(plan).unwrap();
    let data = open(&plan.data, &prediction.graph.sample().unwrap(), plan.seed).unwrap();
    let on_rank = |transport: LocalTransport, data: &DataSet| {
        let program = &prediction.programs[plan.mesh().place(transport.rank()).0.index()];
        let parts = (plan, &prediction.graph, program);
        let mut rank = match make {
            None => Rank::new(parts, data, transport, 1),
            Some(make) => Rank::on(make(program), parts, data, transport, 1),
        };
        rank.connect(&prediction.groups).unwrap();
        let step = |step| {
            before(&mut rank, step);
            rank.step(step).unwrap().loss
        };
        let losses = (0..plan.steps).map(step).collect();
        rank.fetch_persistent_state();
        let persistent_state = rank.persistent_state();
        (
            losses,
            persistent_state.iter().map(|t| (t.name.clone(), rank.values(t).to_vec())).collect(),
        )
    };
    std::thread::scope(|scope| {
        let start = |transport| scope.spawn(|| on_rank(transport, &data));
        let ranks: Vec<_> = local(plan.ranks(), 64).into_iter().map(start).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

/// Every operation of the runner, on one rank and on three.
fn trains_like_the_processor(make: &Make) {
    let optimizers = ["sgd:lr=0.002,momentum=0.9,nesterov=true", "adamw:lr=0.001", "lars:lr=0.1"];
    // How far losses may be, and tensors by their largest value. In two bytes a bit in the last place grows:
    // parameters are rounded on the device alone, and gradients of biases are what is left of large sums.
    let precisions = [
        (Precision::F32, 1e-4, 1e-3),
        (Precision::F32, 1e-4, 1e-3),
        (Precision::Bf16, 5e-3, 0.3),
        (Precision::F16, 1e-3, 0.1),
    ];
    let mut faults: Vec<String> = vec![];
    let cases = (0..networks::all().len())
        .flat_map(|graph| [(graph, 1), (graph, 3), (graph, 3), (graph, 1)]);
    for (number, (graph, stages)) in cases.enumerate() {
        let (optimizer, limits) = (optimizers[(number + graph) % 3], precisions[number % 4]);
        let (precision, loss_at_most, value_at_most) = limits;
        let what = format!("network {graph}, {stages} stages, {optimizer}, {precision:?}");
        let network = networks::all().swap_remove(graph);
        if precision.is_half() && network.name() == "experts" {
            // A token may find two experts alike but for the rounding of sums in two bytes, and go to the other one.
            // Their kernels are compared in these types one by one.
            continue;
        }
        let mut draft = draft_of(network, stages);
        (draft.mini_batch, draft.micro_batches, draft.steps) = (8, 2, 3);
        draft.optimizer = optimizer.parse().unwrap();
        if precision.is_half() {
            let rate = draft.optimizer.learning_rate() / 10.0;
            draft.optimizer.replace("learning_rate", rate).unwrap();
        }
        draft.training.precision = precision;
        let plan = draft.plan().unwrap().0;
        let (here, there) = (train(&plan, None), train(&plan, Some(make)));
        for ((losses, persistent_state), (found, of_device)) in here.iter().zip(&there) {
            for (step, (loss, found)) in losses.iter().zip(found).enumerate() {
                let far = (loss - found).abs() / loss.abs().max(1e-3);
                if far >= loss_at_most {
                    faults.push(format!("{what}, step {step}: {found} is not {loss}"));
                }
            }
            // Adam makes whole steps of gradients that are zero but for rounding: biases before norms.
            let compared =
                persistent_state.iter().zip(of_device).filter(|_| !optimizer.starts_with("adam"));
            for ((name, values), (_, found)) in compared {
                let most = values.iter().fold(1e-3_f32, |most, value| most.max(value.abs()));
                let far = values.iter().zip(found).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                if far >= value_at_most as f32 * most {
                    faults.push(format!("{what}: `{name}` is {far} off, of {most}"));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn on_the_emulator() {
    if emulator::is_there() {
        trains_like_the_processor(&emulated);
    }
}

/// What no kernel computes ends the run with its name, and no number is made up.
#[test]
fn heads_that_are_too_wide() {
    if !emulator::is_there() {
        return;
    }
    let network = "transformer:layers=1,hidden=512,heads=1,sequence=4,vocabulary=8";
    let mut draft = draft(network.parse().unwrap(), 1);
    (draft.mini_batch, draft.micro_batches) = (2, 1);
    let plan = draft.plan().unwrap().0;
    let prediction = predict(&plan).unwrap();
    let data = open(&plan.data, &prediction.graph.sample().unwrap(), plan.seed).unwrap();
    let program = &prediction.programs[0];
    let engine = Engine::new(Emulated::default(), program.tensors(), "a rank").unwrap();
    let parts = (&plan, &prediction.graph, program);
    let mut rank = Rank::on(Box::new(engine), parts, &data, local(1, 64).remove(0), 1);
    rank.connect(&prediction.groups).unwrap();
    let error = rank.step(0).unwrap_err().to_string();
    let words = "emulator has no kernel for attention with heads wider than 256";
    assert!(error.ends_with(words), "{error}");
}

/// The GPU, or nothing, which is said.
pub(crate) fn first_gpu() -> Option<Gpu> {
    let found = gpus().ok().and_then(|all| all.into_iter().next());
    if found.is_none() {
        pipewright::tools::refused("this machine has no GPU");
    }
    found
}

/// Ranks share it.
fn on_gpu(gpu: Gpu) -> impl Fn(&Program) -> Box<dyn Accelerator> + Sync {
    move |program| {
        let driver = Driver::open(&gpu).unwrap();
        Box::new(Engine::new(GraphReplay::new(driver), program.tensors(), "a rank").unwrap())
    }
}

#[test]
fn on_a_gpu() {
    if let Some(gpu) = first_gpu() {
        trains_like_the_processor(&on_gpu(gpu));
    }
}
