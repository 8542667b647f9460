//! The left column: what is chosen.

use crate::base::stops::{divisors, multiples};
use crate::base::texts::{t, tr};
use crate::planner::engine;
use crate::planner::inputs::Inputs;
use crate::planner::kept;
use crate::planner::link::{MICRO_BATCHES_MAX, MINI_BATCH_MAX, STAGES_MAX};
use crate::planner::presets::EXAMPLES;
use crate::planner::repair::dividing;
use crate::screens::plan::view::training::Rest;
use crate::state::State;
use crate::widgets::precision::PrecisionSelect;
use crate::widgets::schedule::ScheduleSelect;
use crate::widgets::selects::{ClusterSelect, Group, ModelSelect};
use crate::widgets::slider::Slider;
use crate::widgets::split::Split;
use leptos::prelude::*;

#[component]
pub fn Inputs() -> impl IntoView {
    let state = expect_context::<State>();
    view! {
        <aside class="inp" id="inputs" class:open=move || state.sheet.get() aria-label=t("Inputs")>
            <Group title=t("Model and cluster") hint="">
                <ModelSelect id="model" />
                <ClusterSelect id="cluster" />
                <Examples />
            </Group>
            <Group title=t("Split") hint=t("height is compute time")>
                <Split />
            </Group>
            <Group title=t("Pipeline") hint="">
                <Pipeline />
            </Group>
            <Rest />
        </aside>
    }
}

/// States to click; files come by the header's button or a drop.
#[component]
fn Examples() -> impl IntoView {
    let state = expect_context::<State>();
    view! {
        <div class="ex" role="group" aria-label=t("Examples")>
            {EXAMPLES.iter().map(|example| view! {
                <button title=t(example.why) on:click=move |_| state.load(example.inputs())>{example.title}</button>
            }).collect_view()}
            <button id="stories" title=t("Ten states that each tell something")
                on:click=move |_| state.look.gallery.set(true)>{t("Stories")}" …"</button>
        </div>
        <p class="note wide">{t("or drop a plan.json or trace.json anywhere")}</p>
    }
}

#[component]
fn Pipeline() -> impl IntoView {
    let state = expect_context::<State>();
    let schedule = Memo::new(move |_| state.inputs.with(|i| i.schedule));
    let room =
        Memo::new(move |_| state.graph.with(|g| u64::from(engine::most_lanes(g, schedule.get()))));
    let lanes_most = move || room.get().min(64);
    let change = move |dragging: bool, f: &dyn Fn(&mut crate::planner::inputs::Inputs)| {
        state.drag(f);
        if !dragging {
            state.release();
        }
    };
    let set_stages = Callback::new(move |(n, dragging): (u64, bool)| {
        let most = room.get_untracked().min(u64::from(STAGES_MAX));
        if n > most {
            let said = tr!("{n} lanes: this model has layers for at most {most}.", n, most);
            return state.offer(said, most as u32, schedule.get_untracked());
        }
        change(dragging, &|i| {
            if u64::from(i.lanes()) != n {
                kept::recut(i, &|i| engine::split(i, n as u32));
            }
        });
    });
    let set_m = Callback::new(move |(n, dragging): (u64, bool)| {
        change(dragging, &|i| i.micro_batches = n as u32);
    });
    let set_batch = Callback::new(move |(n, dragging): (u64, bool)| {
        change(dragging, &|i| i.mini_batch = n);
    });
    let micro = Memo::new(move |_| state.inputs.with(|i| u64::from(i.micro_batches)));
    let batch = Memo::new(move |_| state.inputs.with(|i| i.mini_batch));
    let replicas = Memo::new(move |_| state.inputs.with(copies));
    view! {
        <Slider id="stages" label=t("Lanes") set=set_stages usual=4 most=STAGES_MAX.into()
            unit=Signal::derive(move || tr!("of {most}", most = lanes_most()))
            values=Signal::derive(move || (1..=lanes_most()).collect())
            value=Signal::derive(move || state.inputs.with(|i| u64::from(i.lanes()))) />
        <Slider id="micro-batches" label=t("Micro-batches") set=set_m usual=8 most=MICRO_BATCHES_MAX.into()
            unit=Signal::derive(String::new)
            values=Signal::derive(move || divisors(share(batch.get(), replicas.get()), 1024)) value=micro />
        <MicroBatchNote />
        <Slider id="mini-batch" label=t("Mini-batch") set=set_batch usual=EXAMPLES[0].mini_batch most=MINI_BATCH_MAX
            unit=Signal::derive(|| t("smp").to_owned())
            values=Signal::derive(move || multiples(micro.get() * replicas.get())) value=batch />
        <ScheduleSelect id="schedule" />
        <PrecisionSelect id="precision" />
    }
}

fn copies(inputs: &Inputs) -> u64 {
    inputs.rest.data_parallel.replicas.into()
}

/// Samples of a replica; all where they do not divide, so that there is something to choose.
fn share(batch: u64, replicas: u64) -> u64 {
    if batch.is_multiple_of(replicas) { batch / replicas } else { batch }
}

/// Which values are allowed, or what to do about one that is not.
#[component]
fn MicroBatchNote() -> impl IntoView {
    let state = expect_context::<State>();
    let says = move || {
        state.inputs.with(|i| match (i.samples(), copies(i)) {
            (Some(1), replicas) => {
                tr!("divisors of {batch} · 1 each", batch = share(i.mini_batch, replicas))
            }
            (Some(n), replicas) => {
                tr!("divisors of {batch} · {n} each", batch = share(i.mini_batch, replicas), n)
            }
            (None, 1) => {
                tr!("{m} does not divide {batch}", m = i.micro_batches, batch = i.mini_batch)
            }
            (None, replicas) => tr!(
                "{m} x {replicas} replicas do not divide {batch}",
                m = i.micro_batches,
                replicas,
                batch = i.mini_batch
            ),
        })
    };
    let conflict = Memo::new(move |_| state.inputs.with(|i| i.samples().is_none()));
    view! {
        <div class="row tight">
            <p class="note" id="micro-batches-note" class:bad=move || conflict.get()
                title=t("Micro-batches must divide the mini-batch; the slider only stops where they do")>
                {says}
                <Show when=move || conflict.get()>
                    <button class="fix" on:click=move |_| state.edit(|i| *i = dividing(i))>
                        {move || state.inputs.with(|i| match dividing(i) {
                            next if next.mini_batch == i.mini_batch => tr!("Use {m}", m = next.micro_batches),
                            next => tr!("Use a mini-batch of {batch}", batch = next.mini_batch),
                        })}
                    </button>
                </Show>
            </p>
        </div>
    }
}
