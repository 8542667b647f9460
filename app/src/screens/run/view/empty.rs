//! Without a trace: how one gets one, in three steps.

use crate::base::texts::t;
use crate::base::upload;
use crate::planner::command::measuring;
use crate::planner::inputs::Inputs;
use crate::state::State;
use crate::state::request::{Request, Side};
use crate::widgets::clipboard::copy;
use crate::widgets::icons::{Icon, icon};
use leptos::prelude::*;

#[component]
pub fn Empty(
    /// Whether the machine that serves the page offers runs.
    offered: RwSignal<bool>,
) -> impl IntoView {
    let page = expect_context::<State>();
    let command = move || {
        let ranks = page.inputs.with(Inputs::ranks);
        measuring(ranks)
    };
    view! {
        <section class="time run-empty" aria-label=t("How to measure a run")>
            <h2>{t("A prediction is half the story. Run the plan and compare")}</h2>
            <ol>
                <li>
                    <h3>{t("Export the plan")}</h3>
                    <p>{t("One file with everything the runner needs.")}</p>
                    <button class="btn" id="run-export" on:click=move |_| page.request(Request::Export)>{t("Export plan.json")}</button>
                </li>
                <li>
                    <h3>{t("Run it on the training machine")}</h3>
                    <p class="cmd"><code id="run-command">{command}</code></p>
                    <button class="btn" id="run-copy" on:click=move |_| copy(page, untrack(command))>{t("Copy the command")}</button>
                    <p class="dim">{t("Without mpirun the ranks are threads of one process.")}</p>
                </li>
                <li>
                    <h3>{t("Drop the run's files anywhere on this page")}</h3>
                    <p>{t("trace.json shows the last steps lane by lane; rank-*.jsonl shows \
                           loss and step time. Drop several runs to compare them.")}</p>
                    <p class="cmd"><code>"run/trace.json"</code> <code>"run/rank-000.jsonl"</code></p>
                    <OpenFiles />
                </li>
            </ol>
            <p>
                <button class="btn acc" id="run-example" on:click=move |_| page.request(Request::Example)>{t("See an example run")}</button>
                " " <span class="dim">{t("Digits CNN on 4 MPI ranks: plan, trace and loss as the runner wrote them.")}</span>
            </p>
            <Show when=move || offered.get()>
                <p>
                    <button class="btn acc" id="run-start" on:click=move |_| page.request(Request::RunHere)>{t("Run here")}</button>
                    " " <span class="dim">{t("Trains this plan on the machine that serves this page, and shows it step by step.")}</span>
                </p>
            </Show>
            <p class="dim">{t("Files are read in this page; nothing is uploaded.")}</p>
        </section>
    }
}

/// The file input, drawn as a button.
#[component]
fn OpenFiles() -> impl IntoView {
    let page = expect_context::<State>();
    let chosen = move |event| page.request(Request::Open(upload::chosen(&event), Side::B));
    view! {
        <label class="btn open">
            {icon(Icon::Open)} <span>{t("Open files of a run")}</span>
            <input id="import-run" type="file" accept=".json,.jsonl,application/json" multiple
                aria-label=t("Open files of a run") on:change=chosen />
        </label>
    }
}
