//! Plans that were kept, side by side with A and B: more than two can be weighed.

use super::shown::Compare;
use crate::base::format::{self, hero};
use crate::base::texts::{t, tr};
use crate::planner::compare::{describe, in_short};
use crate::planner::engine::Figures;
use crate::planner::inputs::Inputs;
use crate::widgets::icons::{Icon, icon};
use leptos::prelude::*;

/// Plans that fit beside the two.
const MOST: usize = 8;

/// A plan that was kept, with what it came to then.
#[derive(Clone, Debug, PartialEq)]
pub struct KeptPlan {
    pub inputs: Inputs,
    pub figures: Figures,
}

#[component]
pub fn Shelf() -> impl IntoView {
    let state = expect_context::<Compare>();
    let kept = state.kept;
    let keep = move |_| {
        let next = state.page.shown.with_untracked(|s| KeptPlan {
            inputs: s.solved.inputs.alone(),
            figures: s.solved.figures,
        });
        kept.update(|kept| match kept.iter().position(|old| old.inputs == next.inputs) {
            Some(at) => kept[at] = next,
            None if kept.len() == MOST => state
                .page
                .complain(tr!("{most} plans are kept at most; remove one first.", most = MOST)),
            None => kept.push(next),
        });
    };
    let rows =
        move || {
            let model = state.page.inputs.with(|inputs| inputs.model.title());
            // Of the same model what differs is said, where there is room for little.
            let named = move |inputs: &Inputs| match inputs.model.title() == model {
                true => in_short(inputs),
                false => describe(inputs),
            };
            let side = |index: usize| {
                let solved = state.side(index)?.solved;
                Some((["A", "B"][index].to_owned(), named(&solved.inputs), solved.figures, None))
            };
            let mut all: Vec<_> = [side(0), side(1)].into_iter().flatten().collect();
            let kept = kept.get().into_iter().enumerate();
            all.extend(kept.map(|(at, plan)| {
                let what = named(&plan.inputs);
                ((at + 1).to_string(), what, plan.figures, Some((at, plan.inputs)))
            }));
            let best = all.iter().map(|(_, _, figures, _)| figures.step).min();
            all.into_iter().map(|(name, what, figures, own)| {
            let (time, unit) = hero(figures.step);
            let fastest = Some(figures.step) == best;
            let title = what.clone();
            view! {
                <tr class:me=fastest>
                    <th scope="row" title=title><b>{name}</b>" "<span>{what}</span></th>
                    <td class="num">{format!("{time} {unit}")}</td>
                    <td class="num">{format::bytes_text(figures.peak)}</td>
                    <td class="num">{format!("{} %", format::percent(figures.bubble, 0))}</td>
                    <td>{own.map(|(at, inputs)| buttons(state, at, inputs))}</td>
                </tr>
            }
        }).collect_view()
        };
    view! {
        <section class="shelf" aria-label=t("Kept plans")>
            <div class="sec">
                <h2>{t("Side by side")}</h2>
                <button class="btn" id="keep-plan" title=t("B stays in this list while you change it") on:click=keep>{t("Keep B")}</button>
            </div>
            <table id="shelf">
                <thead><tr>
                    <th>{t("plan")}</th><th class="num">{t("step")}</th><th class="num">{t("memory")}</th>
                    <th class="num">{t("idle")}</th><th><span class="sr">{t("what to do with it")}</span></th>
                </tr></thead>
                <tbody>{rows}</tbody>
            </table>
        </section>
    }
}

fn buttons(state: Compare, at: usize, inputs: Inputs) -> impl IntoView {
    let (page, kept) = (state.page, state.kept);
    let other = inputs.clone();
    let edit = move |_| {
        let a = page.inputs.with_untracked(|now| now.a.clone());
        page.replace(Inputs { a, ..inputs.clone() });
    };
    view! {
        <button class="pick" title=t("Use it as A") on:click=move |_| page.pin(Some(other.clone()))>"A"</button>
        <button class="pick" title=t("Use it as B") on:click=edit>"B"</button>
        <button class="ib" aria-label=tr!("Remove plan {number}", number = at + 1) on:click=move |_| {
            kept.update(|kept| drop(kept.remove(at)));
        }>{icon(Icon::Close)}</button>
    }
}
