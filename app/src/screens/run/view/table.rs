//! The table of drift: what each kind of work took, and what the step owes to it.

use super::shown::Run;
use crate::base::texts::t;
use crate::screens::run::chart::drift::rows;
use leptos::prelude::*;

#[component]
pub fn DriftTable() -> impl IntoView {
    let state = expect_context::<Run>();
    let by_share = state.by_share;
    let body = move || {
        let by_share = by_share.get();
        state.table.with(|table| match table {
            Some(Ok(table)) => rows(table, by_share),
            _ => String::new(),
        })
    };
    let order = [(true, t("Largest first")), (false, t("By stage"))].map(|(largest, name)| {
        let on = move || (by_share.get() == largest).to_string();
        view! { <button aria-pressed=on on:click=move |_| by_share.set(largest)>{name}</button> }
    });
    view! {
        <div class="drift">
            <div class="th">
                <h2>{t("Drift")}</h2>
                <div class="seg" role="group" aria-label=t("Order of the table")>{order.collect_view()}</div>
                <button class="ib fold" id="drift-fold" aria-expanded=move || (!state.folded.get()).to_string()
                    on:click=move |_| state.folded.update(|f| *f = !*f)>
                    {move || if state.folded.get() { t("Show the tables") } else { t("Fold the tables") }}</button>
            </div>
            <div class="scroll" tabindex="0" role="region" aria-label=t("Table of drift")>
                <table id="drift">
                    <thead><tr>
                        <th scope="col">{t("stage")}</th>
                        <th scope="col">{t("work")}</th>
                        <th scope="col" class="num">{t("count")}</th>
                        <th scope="col" class="num">{t("predicted")}</th>
                        <th scope="col" class="num">{t("measured")}</th>
                        <th scope="col" class="num" title=t("measured over predicted")>{t("ratio")}</th>
                        <th scope="col" class="num"
                            title=t("What the step gains or loses if only this work takes its \
                                     measured time, by simulation")>
                            {t("of the step")}</th>
                    </tr></thead>
                    <tbody inner_html=body></tbody>
                </table>
                <p class="note wide">{t("Times are medians over the step. Each share is \
                                         simulated on its own, so they need not add up; the last \
                                         five rows do.")}</p>
            </div>
        </div>
    }
}
