//! Contents of the Model screen, computed in two steps: what the network is, and what the plan makes of it.

use crate::base::screen::Screen;
use crate::base::shared::Shared;
use crate::draw::layers::Places;
use crate::screens::model::anatomy::arcs::{self, Arc};
use crate::screens::model::anatomy::chain::Chain;
use crate::screens::model::anatomy::fold::{self, Group, LayerRow};
use crate::screens::model::anatomy::{Anatomy, Passes};
use crate::screens::model::chart::chain as picture;
use crate::screens::model::chart::chain::Look;
use crate::state::State;
use leptos::prelude::*;
use pipewright_core::cost::Costs;
use pipewright_core::units::Nanos;

/// Networks of up to so many layers open unfolded.
const UNFOLDED: usize = 40;

/// The network.
pub struct Net {
    pub anatomy: Anatomy,
    pub groups: Vec<Group>,
}

/// Its rows, and the plan on them.
pub struct Scene {
    pub net: Shared<Net>,
    pub chain: Chain,
    pub arcs: Vec<Arc>,
    /// Times that the plan is predicted from.
    pub times: Vec<Passes>,
    /// The cluster's own, without typed ones.
    pub own: Vec<Passes>,
    /// Layers with typed times.
    pub typed: Vec<u32>,
    pub longest: Nanos,
    /// First layers of the stages but the first.
    pub borders: Vec<usize>,
    /// Those that folded rows have room for: while a cut is dragged rows stay under the hand.
    calm: Vec<usize>,
    /// Of a micro-batch.
    samples: u64,
}

/// State of the screen. Copied into its parts.
#[derive(Clone, Copy)]
pub struct Looked {
    pub page: State,
    pub net: Memo<Shared<Net>>,
    pub scene: Memo<Shared<Scene>>,
    /// Which groups are unfolded.
    pub open: RwSignal<Vec<bool>>,
    pub picked: RwSignal<Option<LayerRow>>,
    /// Counts wishes to see the picked row.
    pub reveal: RwSignal<u32>,
    /// Where cuts can be.
    pub places: Memo<Shared<Places>>,
}

impl Looked {
    pub fn new(page: State) -> Self {
        // Nobody looks at what is hidden.
        let net = Memo::new(move |old: Option<&Shared<Net>>| match (page.screen.get(), old) {
            (Screen::Model, _) | (_, None) => {
                let anatomy = page.graph.with(|g| Anatomy::new(g));
                let groups = fold::groups(anatomy.layers.iter().map(|l| l.name.as_str()));
                Shared::new(Net { anatomy, groups })
            }
            (_, Some(old)) => old.clone(),
        });
        let open = RwSignal::new(net.with_untracked(|n| unfolded(n)));
        let scene = Memo::new(move |old: Option<&Shared<Scene>>| match (page.screen.get(), old) {
            (Screen::Model, _) | (_, None) => {
                let calm = old.filter(|_| page.history.with(|h| h.dragging()));
                open.with(|open| Shared::new(scene(page, net.get(), open, calm)))
            }
            (_, Some(old)) => old.clone(),
        });
        let picked = RwSignal::new(None);
        Effect::new(move |old: Option<Shared<Net>>| {
            let now = net.get();
            if old.is_some_and(|old| old != now) {
                open.set(unfolded(&now));
                picked.set(None);
            }
            now
        });
        let places = Memo::new(move |_| page.layers.with(|l| Shared::new(Places::new(l))));
        Self { page, net, scene, open, picked, reveal: RwSignal::new(0), places }
    }

    /// The rows, what they are drawn from, and all else, handed to `draw`.
    pub fn look<T>(self, draw: impl FnOnce(&Scene, &Look) -> T) -> T {
        let scene = self.scene.get();
        let look = Look {
            anatomy: &scene.net.anatomy,
            groups: &scene.net.groups,
            times: &scene.times,
            typed: &scene.typed,
            samples: scene.samples,
            selected: self.picked.get().map(|row| scene.chain.find(&row)),
        };
        draw(&scene, &look)
    }

    /// Index of the selected row, and the row.
    pub fn selected(self) -> Option<(usize, LayerRow)> {
        let row = self.picked.get()?;
        self.scene.with(|s| {
            let at = s.chain.find(&row);
            s.chain.rows.get(at).map(|row| (at, *row))
        })
    }

    /// Selects a row and brings it into sight.
    pub fn pick(self, row: usize) {
        let row = self.scene.with_untracked(|s| s.chain.rows.get(row).copied());
        if row.is_some() {
            self.picked.set(row);
            self.reveal.update(|n| *n += 1);
        }
    }

    /// Folds or unfolds a group.
    pub fn turn(self, group: usize, unfold: bool) {
        self.open.update(|open| {
            if let Some(is_open) = open.get_mut(group) {
                *is_open = unfold;
            }
        });
    }
}

fn scene(page: State, net: Shared<Net>, open: &[bool], calm: Option<&Shared<Scene>>) -> Scene {
    let (anatomy, groups) = (&net.anatomy, &net.groups);
    let layers = &anatomy.layers;
    let (cuts, typed) = page.inputs.with(|i| (i.cuts.clone(), i.typed().cloned()));
    let border = |cut: &u32| layers.partition_point(|l| l.nodes.start < *cut);
    let borders: Vec<usize> = cuts.iter().map(border).collect();
    let calm = calm.map_or_else(|| borders.clone(), |old| old.calm.clone());
    let chain = Chain::new(layers.len(), groups, open, &calm);
    let ground = page.ground.get();
    let times = anatomy.times(&ground.costs);
    let samples = ground.costs.samples;
    let own = if typed.is_some() {
        let cluster = page.inputs.with(|i| i.cluster.cluster());
        anatomy.times(&Costs::new(&ground.graph, &cluster, samples, ground.precision))
    } else {
        times.clone()
    };
    Scene {
        arcs: arcs::arcs(&anatomy.skips, &chain),
        longest: picture::longest(&chain.rows, &times),
        typed: typed.map_or(vec![], |t| t.layers.iter().map(|l| l.layer).collect()),
        net,
        chain,
        times,
        own,
        borders,
        calm,
        samples,
    }
}

/// Which groups are open at first.
fn unfolded(net: &Net) -> Vec<bool> {
    vec![net.anatomy.layers.len() <= UNFOLDED; net.groups.len()]
}
