//! What the Model screen shows, each computed from what stands above it.

use crate::charts::chain::{self as picture, Look};
use crate::charts::layers::Places;
use crate::model::arcs::{self, Arc};
use crate::model::chain::Chain;
use crate::model::fold::{self, Group, Row};
use crate::model::{Anatomy, Passes};
use crate::screen::Screen;
use crate::shared::Shared;
use crate::state::State;
use leptos::prelude::*;
use pipewright_core::cost::Costs;
use pipewright_core::units::Nanos;
use std::collections::BTreeSet;

/// Networks of up to so many layers open unfolded.
const UNFOLDED: usize = 40;

/// State of the screen. Copied into its parts.
#[derive(Clone, Copy)]
pub struct Looked {
    pub page: State,
    pub anatomy: Memo<Shared<Anatomy>>,
    pub groups: Memo<Shared<Vec<Group>>>,
    /// Unfolded groups.
    pub open: RwSignal<BTreeSet<usize>>,
    pub chain: Memo<Shared<Chain>>,
    pub arcs: Memo<Shared<Vec<Arc>>>,
    /// Times that the plan is predicted from.
    pub times: Memo<Shared<Vec<Passes>>>,
    /// The cluster's own, without typed ones.
    pub own: Memo<Shared<Vec<Passes>>>,
    /// Layers with typed times.
    pub typed: Memo<Vec<u32>>,
    pub longest: Memo<Nanos>,
    /// Where cuts can be.
    pub places: Memo<Shared<Places>>,
    /// First layers of the stages but the first.
    pub borders: Memo<Vec<usize>>,
    pub picked: RwSignal<Option<Row>>,
    /// Index of the picked row.
    pub selected: Memo<usize>,
    /// Counts wishes to see the picked row.
    pub reveal: RwSignal<u32>,
}

impl Looked {
    pub fn new(page: State) -> Self {
        let anatomy = while_seen(page, move || page.graph.with(|g| Anatomy::new(g)));
        let groups = Memo::new(move |_| {
            Shared::new(anatomy.with(|a| fold::groups(a.layers.iter().map(|l| l.name.as_str()))))
        });
        let open = RwSignal::new(unfolded(&anatomy.get_untracked(), &groups.get_untracked()));
        let borders = borders(page, anatomy);
        let chain = chain(page, anatomy, groups, open, borders);
        let arcs = Memo::new(move |_| {
            Shared::new(anatomy.with(|a| chain.with(|c| arcs::arcs(&a.skips, c))))
        });
        let times =
            while_seen(page, move || anatomy.with(|a| page.ground.with(|g| a.times(&g.costs))));
        let typed = Memo::new(move |_| {
            let typed = page.inputs.with(|i| i.typed().cloned());
            typed.map_or(vec![], |t| t.layers.iter().map(|l| l.layer).collect())
        });
        let own = while_seen(page, move || {
            if typed.with(Vec::is_empty) {
                return times.with(|t| t.to_vec());
            }
            let cluster = page.inputs.with(|i| i.cluster.cluster());
            let samples = page.ground.with(|g| g.costs.samples);
            let costs = page.graph.with(|g| Costs::new(g, &cluster, samples));
            anatomy.with(|a| a.times(&costs))
        });
        let picked = RwSignal::new(None);
        let selected =
            Memo::new(move |_| picked.get().map_or(0, |row| chain.with(|c| c.find(&row))));
        let longest =
            Memo::new(move |_| chain.with(|c| times.with(|t| picture::longest(&c.rows, t))));
        let places = Memo::new(move |_| page.layers.with(|l| Shared::new(Places::new(l))));
        Effect::new(move |old: Option<Shared<Anatomy>>| {
            let now = anatomy.get();
            if old.is_some_and(|old| old != now) {
                open.set(unfolded(&now, &groups.get_untracked()));
                picked.set(None);
            }
            now
        });
        let reveal = RwSignal::new(0);
        Self {
            page,
            anatomy,
            groups,
            open,
            chain,
            arcs,
            times,
            own,
            typed,
            longest,
            places,
            borders,
            picked,
            selected,
            reveal,
        }
    }

    /// What rows are drawn from, handed to `draw`.
    pub fn look<T>(self, draw: impl FnOnce(&Chain, &Look) -> T) -> T {
        let (chain, anatomy, groups) = (self.chain.get(), self.anatomy.get(), self.groups.get());
        let (times, typed) = (self.times.get(), self.typed.get());
        let look = Look {
            anatomy: &anatomy,
            groups: &groups,
            times: &times,
            typed: &typed,
            samples: self.page.ground.with(|g| g.costs.samples),
            selected: self.selected.get(),
        };
        draw(&chain, &look)
    }

    /// Selects a row and brings it into sight.
    pub fn pick(self, row: usize) {
        let row = self.chain.with_untracked(|c| c.rows.get(row).copied());
        if row.is_some() {
            self.picked.set(row);
            self.reveal.update(|n| *n += 1);
        }
    }

    /// Selects a layer's row.
    pub fn pick_layer(self, layer: usize) {
        self.pick(self.chain.with_untracked(|c| c.row_of(layer)));
    }

    /// The row that is selected.
    pub fn row(self) -> Option<Row> {
        self.chain.with(|c| c.rows.get(self.selected.get()).copied())
    }

    /// Folds or unfolds a group.
    pub fn turn(self, group: usize, unfold: bool) {
        self.open.update(|open| {
            if unfold {
                open.insert(group);
            } else {
                open.remove(&group);
            }
        });
    }
}

/// The first layers of the stages but the first.
fn borders(page: State, anatomy: Memo<Shared<Anatomy>>) -> Memo<Vec<usize>> {
    Memo::new(move |_| {
        let of = |a: &Anatomy, cut: &u32| a.layers.partition_point(|l| l.nodes.start < *cut);
        let cuts = page.inputs.with(|i| i.cuts.clone());
        anatomy.with(|a| cuts.iter().map(|cut| of(a, cut)).collect::<Vec<_>>())
    })
}

/// The rows. While a cut is dragged they stay: they must not move under the hand.
fn chain(
    page: State,
    anatomy: Memo<Shared<Anatomy>>,
    groups: Memo<Shared<Vec<Group>>>,
    open: RwSignal<BTreeSet<usize>>,
    borders: Memo<Vec<usize>>,
) -> Memo<Shared<Chain>> {
    let calm = Memo::new(move |old: Option<&Vec<usize>>| match old {
        Some(old) if page.history.with(|h| h.dragging()) => old.clone(),
        _ => borders.get(),
    });
    Memo::new(move |_| {
        let layers = anatomy.with(|a| a.layers.len());
        let chain = open.with(|o| groups.with(|g| calm.with(|c| Chain::new(layers, g, o, c))));
        Shared::new(chain)
    })
}

/// Which groups are open at first.
fn unfolded(anatomy: &Anatomy, groups: &[Group]) -> BTreeSet<usize> {
    (0..if anatomy.layers.len() <= UNFOLDED { groups.len() } else { 0 }).collect()
}

/// Nobody looks at what is hidden.
fn while_seen<T: Send + Sync + 'static>(
    page: State,
    make: impl Fn() -> T + Send + Sync + 'static,
) -> Memo<Shared<T>> {
    Memo::new(move |old: Option<&Shared<T>>| match (page.screen.get(), old) {
        (Screen::Model, _) | (_, None) => Shared::new(make()),
        (_, Some(old)) => old.clone(),
    })
}
