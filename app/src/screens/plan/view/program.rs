//! The schedule as text, for reading and copying.

use crate::base::texts::t;
use crate::screens::plan::model::program::lines;
use crate::state::State;
use leptos::prelude::*;

#[component]
pub fn Program() -> impl IntoView {
    let state = expect_context::<State>();
    let text = move || state.shown.with(|s| lines(&s.solved.schedule));
    view! {
        <div class="prog" tabindex="0" role="region" aria-label=t("Order of actions on every lane")>
            <p class="mut">{t("Stage, pass (F forward, B backward, I its part for inputs, W for weights), micro-batch, in the order in which each lane works. plan.json has the same lines.")}</p>
            <pre>{text}</pre>
        </div>
    }
}
