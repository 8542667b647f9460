//! Steps whose gradients are not finite change nothing: not weights, optimizer, running statistics, nor what
//! codecs carry over, on any rank, whatever codec the gradients go through.

use crate::common::bits::Trained;
use crate::common::exchange_suite::{codecs, operators};
use crate::common::{draft_of, networks, runner_in, scratch, write};
use pipewright_core::compress::Reduction;
use pipewright_core::plan::{Communication, DataParallel, Optimizer, Plan};
use pipewright_core::predict::predict;
use pipewright_core::schedule::{ScheduleKind, Updates};
use pipewright_core::units::Bytes;
use pipewright_runner::data::{DataSet, open};
use pipewright_runner::execute::{InjectedFault, ProgressHook, Rank, StepPhase};
use pipewright_runner::transport::Transport;
use pipewright_runner::transport::local::{LocalTransport, local};

/// The step that is not finite, on one rank before its gradients are summed.
const BAD: u64 = 2;

/// A value of the rank's gradient is not a number in that step.
struct Bad(u64);

impl ProgressHook for Bad {
    fn at(&self, place: StepPhase, step: u64) -> Option<InjectedFault> {
        (place == StepPhase::Forward && step == self.0).then_some(InjectedFault::NotFinite)
    }
}

/// Convolutions with running statistics on two stages of two replicas.
fn plan(schedule: ScheduleKind, gradients: Reduction, skip: Option<u32>) -> Plan {
    let mut draft = draft_of(networks::images(), 2);
    draft.schedule = schedule;
    draft.data_parallel = DataParallel { bucket: Bytes(2 << 10), ..DataParallel::ddp(2) };
    draft.optimizer =
        Optimizer::Sgd { learning_rate: 0.01, momentum: 0.9, weight_decay: 0.0, nesterov: false };
    (draft.mini_batch, draft.micro_batches, draft.steps) = (16, 2, 4);
    draft.communication = Communication { gradients, ..Communication::default() };
    draft.training.skip_nonfinite = skip;
    draft.plan().unwrap().0
}

/// All that a rank has after a step, as bits.
type State = Vec<(String, Vec<u32>)>;

fn state(rank: &mut Rank<LocalTransport>) -> State {
    let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect();
    let persistent_state = rank.persistent_state();
    let persistent_state = persistent_state.iter().map(|t| (t.name.clone(), bits(rank.values(t))));
    let mut all: State = persistent_state.collect();
    all.extend(rank.carried().into_iter().map(|t| (t.name, bits(&t.values))));
    all.extend(rank.next_gradients().into_iter().map(|(name, values)| (name, bits(&values))));
    all
}

/// Trains four steps on ranks that are threads, the last of them with a gradient that is not finite in one; a
/// rank's states after each step, and the name of the parameter for which it was skipped.
fn train(plan: &Plan, bad: u64) -> Vec<Vec<(State, Option<String>)>> {
    let prediction = predict(plan).unwrap();
    let data = open(&plan.data, &prediction.graph.sample().unwrap(), plan.seed).unwrap();
    let bad = Bad(bad);
    let on_rank = |transport: LocalTransport, data: &DataSet| {
        let index = transport.rank();
        let program = &prediction.programs[plan.mesh().place(index).0.index()];
        let mut rank = Rank::new((plan, &prediction.graph, program), data, transport, 1);
        rank.connect(&prediction.groups).unwrap();
        assert!(rank.arena_bytes() <= program.arena.0, "memory is planned");
        rank.progress_hook = (index == plan.ranks() - 1).then_some(&bad);
        let step = |step| {
            let skipped = rank.step(step).unwrap().skipped;
            let name = skipped.map(|param| prediction.graph.param(param).name.clone());
            (state(&mut rank), name)
        };
        (0..plan.steps).map(step).collect()
    };
    std::thread::scope(|scope| {
        let start = |transport| scope.spawn(|| on_rank(transport, &data));
        let ranks: Vec<_> = local(plan.ranks(), 64).into_iter().map(start).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

#[track_caller]
fn skips(what: &str, plan: &Plan) {
    let ranks = train(plan, BAD);
    let named = ranks[0][BAD as usize].1.clone();
    assert!(named.is_some(), "{what}: the step is skipped");
    for (rank, steps) in ranks.iter().enumerate() {
        let [(first, a), (before, b), (bad, skipped), (after, c)] = &steps[..] else { panic!() };
        assert_eq!(*skipped, named, "{what}: the same on all ranks");
        assert_eq!((a, b, c), (&None, &None, &None), "{what}: no other");
        for ((name, before), (_, bad)) in before.iter().zip(bad) {
            // What was the weights is the version before them, if that is kept.
            let older = name.contains("@version-");
            assert!(older || before == bad, "{what}: `{name}` of rank {rank} changes");
        }
        assert!(first != before && bad != after, "{what}: the other steps change something");
        let finite =
            |(_, bits): &(String, Vec<u32>)| bits.iter().all(|b| f32::from_bits(*b).is_finite());
        assert!(after.iter().all(finite), "{what}");
    }
}

#[test]
fn a_skipped_step_changes_nothing_whatever_the_codec() {
    let lossy = codecs().into_iter().flat_map(|codec| {
        let plain = Reduction::of(codec);
        [plain, plain.with_feedback()].into_iter().filter(|r| r.fault().is_none())
    });
    let mut tried = 0;
    for gradients in [Reduction::default()].into_iter().chain(lossy).chain(operators()) {
        skips(&gradients.to_string(), &plan(ScheduleKind::OneFOneB, gradients, Some(3)));
        tried += 1;
    }
    assert!(tried > 20, "{tried}");
}

#[test]
fn every_schedule_skips() {
    let mut tried = 0;
    for kind in ScheduleKind::ALL {
        let fits = kind.placement().stages(2) == 2 && kind.updates() != Updates::Stashed;
        if fits && kind.generate(2, 2).is_ok() {
            skips(&kind.to_string(), &plan(kind, Reduction::default(), Some(1)));
            tried += 1;
        }
    }
    assert!(tried >= 4, "{tried}");
}

/// The optimizer has not seen a step that was skipped, so the first update is Adam's first: as long as the rate, where
/// a later one of such gradients would be shorter.
#[test]
fn a_skipped_step_is_none_of_the_optimizers() {
    let mut plan = plan(ScheduleKind::OneFOneB, Reduction::default(), Some(3));
    plan.optimizer = "adam:lr=0.001".parse().unwrap();
    for steps in train(&plan, 0) {
        let (before, after) = (&steps[0].0, &steps[1].0);
        let weights = |(name, _): &&(String, Vec<u32>)| name.ends_with(".weight");
        let changes = before.iter().zip(after).filter(|(before, _)| weights(before));
        let changes = changes.flat_map(|((_, before), (_, after))| before.iter().zip(after));
        let by = changes.map(|(a, b)| (f32::from_bits(*a) - f32::from_bits(*b)).abs());
        let largest = by.fold(0.0, f32::max);
        assert!((largest - 1e-3).abs() < 2e-6, "{largest}");
    }
}

/// Looking at gradients changes nothing of what is trained.
#[test]
fn a_plan_that_skips_trains_the_same_bits() {
    let dir = scratch("skips-nothing");
    let [with, without] = [Some(10), None].map(|skip| {
        Trained::over_threads(&dir, &plan(ScheduleKind::OneFOneB, Reduction::default(), skip))
    });
    with.is("steps that could be skipped", &without);
}

#[test]
fn too_many_in_a_row_end_the_run() {
    let dir = scratch("skips-all");
    let mut plan = plan(ScheduleKind::OneFOneB, Reduction::default(), None);
    plan.optimizer = "sgd:lr=1e20".parse().unwrap();
    plan.steps = 100;
    write(&dir, "plan.json", plan.to_json());
    let args = ["plan.json", "--skip-nonfinite", "4", "--out", "out"];
    let ended = runner_in(&dir, &args);
    ended.refused(1, "is not finite, for 4 steps in a row");
    assert_eq!(ended.stderr.matches("is skipped: the gradient of").count(), 3, "{ended:#?}");
    runner_in(&dir, &["plan.json", "--skip-nonfinite", "0"]).refused(3, "training.skip_nonfinite");
}
