//! Speed-up over m, a curve per d, with the published points where the plan is their experiment.

use crate::base::texts::{t, tr};
use crate::planner::{engine, kept};
use crate::screens::plan::chart::{OwnPoint, axes_of, draw, nearest};
use crate::screens::plan::model::speedup::published;
use crate::screens::plan::state::PlanState;
use crate::state::State;
use crate::widgets::readout::Readout;
use leptos::prelude::*;
use pipewright_core::cost::takisawa::MeasuredSpeedup;

#[component]
pub fn SpeedUp(own: PlanState) -> impl IntoView {
    let state = expect_context::<State>();
    let frame: NodeRef<leptos::html::Div> = NodeRef::new();
    let size = crate::widgets::size::watch(frame, (640.0, 190.0));
    let points = Memo::new(move |_| state.inputs.with(published).to_vec());
    let readout = Readout::new();
    let plan = Memo::new(move |_| {
        let now = state.shown.with(|s| {
            let i = &s.solved.inputs;
            (i.lanes(), f64::from(i.micro_batches), s.solved.figures.step)
        });
        OwnPoint { d: now.0, m: now.1, speedup: own.curves.with(|c| c.alone.secs()) / now.2.secs() }
    });
    let place = Memo::new(move |_| {
        own.curves.with(|c| axes_of(c, &points.get(), plan.get(), size.get(), own.log_axis.get()))
    });
    let picture = move || {
        readout.clear();
        own.curves.with(|c| draw(&place.get(), c, &points.get(), plan.get()))
    };
    let over = move |event: leptos::ev::MouseEvent| {
        let find = |at| own.curves.with_untracked(|c| nearest(&place.get_untracked(), c, at));
        readout.moved(&event, find);
    };
    view! {
        <div class="speed" node_ref=frame>
            // The same in words: the table beside it.
            <div class="plot" inner_html=picture on:mousemove=over on:mouseleave=move |_| readout.clear()></div>
            {readout.view()}
        </div>
        <Best own points />
    }
}

/// The best m of every d; a click takes it over.
#[component]
fn Best(own: PlanState, points: Memo<Vec<MeasuredSpeedup>>) -> impl IntoView {
    let state = expect_context::<State>();
    let rows = move || {
        let curves = own.curves.get();
        let now = state.inputs.with(|i| i.lanes());
        let copies = curves.copies();
        let row = move |curve: crate::screens::plan::model::speedup::Curve| {
            let best = curve.best()?;
            let d = curve.d;
            let real = points.get().into_iter().find(|p| p.d == u64::from(d));
            let real = real
                .map(|p| {
                    tr!("{speedup} at {m}", speedup = format_args!("{:.2}", p.speedup), m = p.m)
                })
                .unwrap_or_default();
            Some(view! {
                <tr class:me=d == now>
                    <td>
                        <button class="pick" title=t("Use this d and m") on:click=move |_| {
                            state.edit(|i| {
                                i.micro_batches = best.m as u32;
                                kept::recut(i, &|i| engine::split(i, d));
                            });
                        }>{if d == 1 { t("1 lane").to_owned() } else { tr!("{d} lanes", d) }}</button>
                    </td>
                    <td class="num">{best.m}</td>
                    <td class="num">{format!("{:.2} ×", best.speedup)}</td>
                    <td class="num">{format!("{:.0} %", best.speedup / (f64::from(d) * copies) * 100.0)}</td>
                    <td class="num">{real}</td>
                </tr>
            })
        };
        curves.curves.into_iter().filter_map(row).collect_view()
    };
    let measured = move || if points.get().is_empty() { "" } else { t("measured") };
    view! {
        <div class="front">
            <table>
                <thead><tr>
                    <th>{t("balanced")}</th><th class="num">{t("best m")}</th><th class="num">{t("speed-up")}</th>
                    <th class="num">{t("of devices")}</th><th class="num">{measured}</th>
                </tr></thead>
                <tbody>{rows}</tbody>
            </table>
        </div>
    }
}
