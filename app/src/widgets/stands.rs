//! Signals of the cuts, one for each that changes when its cut does: with all elements of
//! all cuts following the inputs, telling them cost more than planning.

use crate::base::shared::Shared;
use crate::base::texts::tr;
use crate::draw::layers::Places;
use crate::state::State;
use leptos::prelude::*;

/// How a cut looks and what is said of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stand {
    /// Layers before it, less one, and how many there are places.
    pub place: usize,
    pub places: usize,
    pub after: String,
    pub shown: Shown,
}

/// Where a picture of the layers has a cut.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shown {
    /// Of its line; CSS pixels.
    pub top: f64,
    /// Whether its neighbours are so near that grips take columns, so that each can be caught.
    pub crowded: bool,
    /// Said beside it while it moves.
    pub says: String,
}

/// A signal for each cut.
#[derive(Clone, Copy)]
pub struct Stands {
    /// They outlive the elements that read them.
    signals: StoredValue<Vec<ArcRwSignal<Stand>>>,
    of: Callback<usize, Stand>,
}

impl Stands {
    /// `shown` is asked for all cuts when anything that it reads has changed.
    pub fn new(state: State, places: Memo<Shared<Places>>, shown: Callback<usize, Shown>) -> Self {
        let of = Callback::new(move |index: usize| {
            let cut = state.inputs.with(|i| i.cuts.get(index).copied());
            let (place, count) = places.with(|p| (cut.map_or(0, |c| p.of(c)), p.nodes.len()));
            let name = state.layers.with(|l| l.get(place).map(|l| l.name.clone()));
            let after = name.map(|layer| tr!("after {layer}", layer)).unwrap_or_default();
            Stand { place, places: count, after, shown: shown.run(index) }
        });
        let signals = StoredValue::new(Vec::<ArcRwSignal<Stand>>::new());
        Effect::new(move |_| {
            let all = signals.get_value();
            // Those that nobody asked for yet are followed too: they may be before the next change.
            for index in 0..state.inputs.with(|i| i.cuts.len()) {
                let now = of.run(index);
                if let Some(signal) = all.get(index)
                    && signal.with_untracked(|before| *before != now)
                {
                    signal.set(now);
                }
            }
        });
        Self { signals, of }
    }

    /// That of a cut, for the element that asks.
    pub fn of(self, index: usize) -> RwSignal<Stand> {
        let mut all = self.signals.get_value();
        while all.len() <= index {
            let now = untrack(|| self.of.run(all.len()));
            all.push(ArcRwSignal::new(now));
        }
        let signal = all[index].clone();
        self.signals.set_value(all);
        signal.into()
    }
}
