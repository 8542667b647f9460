//! Error-feedback state by parameter, for checkpoints.
//!
//! A rank's own loss of a parameter's gradient is `fc1.weight@residual@rank-3`; what the sum lost that
//! this rank made of its part is `fc1.weight@sum-residual@rank-3`. Both have the parameter's shape and
//! are 0 where the rank carries nothing. All of them together are what the next steps owe the
//! parameter, however they are spread over ranks.

use super::Rank;
use super::gradients::Residuals;
use crate::exchange::Residual;
use crate::transport::Transport;
use pipewright_core::ids::ParamId;
use std::collections::BTreeMap;

/// One tensor of what a rank carries.
#[derive(Clone, Debug, PartialEq)]
pub struct ResidualTensor {
    /// Its name in checkpoints.
    pub name: String,
    /// The parameter's name.
    pub param: String,
    /// The parameter's shape.
    pub shape: Vec<u64>,
    /// Its values.
    pub values: Vec<f32>,
}

fn suffix(whose: Residual) -> &'static str {
    match whose {
        Residual::Worker => "@residual",
        Residual::Server => "@sum-residual",
    }
}

/// The parameter of which a tensor of a checkpoint carries something.
pub fn residual_param(name: &str) -> Option<&str> {
    let (param, kind) = name.split_once("@").filter(|(_, rest)| rest.contains("@rank-"))?;
    let kind = kind.split('@').next()?;
    ["residual", "sum-residual"].contains(&kind).then_some(param)
}

impl<T: Transport> Rank<'_, T> {
    /// How what is carried is spread over ranks: only equal texts can go on with the same bits. None
    /// where nothing is.
    pub fn carried_layout(&self) -> Option<String> {
        self.gradients.layout()
    }

    /// Parameters that this rank holds, with their number of values.
    pub fn held_params(&self) -> BTreeMap<&str, usize> {
        let params = self.program.stages.iter().flat_map(|stage| &stage.params);
        let params = params.map(|place| self.graph.param(place.param));
        params.map(|param| (param.name.as_str(), param.elements() as usize)).collect()
    }

    /// What gradients hold before the next step, by parameter: nothing but what was
    /// [taken over](Rank::take_over) from others.
    pub fn next_gradients(&mut self) -> Vec<(String, Vec<f32>)> {
        let (program, graph) = (self.program, self.graph);
        let whole = program.stages.iter().filter(|stage| !stage.divides_gradients());
        let params = whole.flat_map(|stage| &stage.params);
        let parts = program.stages.iter().zip(&self.division.pieces);
        let parts = parts.filter(|(stage, _)| stage.divides_gradients()).flat_map(|(_, own)| own);
        let held = params.chain(parts).filter_map(|place| Some((place.param, place.gradient?)));
        held.map(|(param, gradient)| {
            (graph.param(param).name.clone(), self.arena.floats(gradient).to_vec())
        })
        .collect()
    }

    /// All that this rank carries.
    pub fn carried(&mut self) -> Vec<ResidualTensor> {
        let (graph, rank) = (self.graph, self.replica.rank);
        let mut all: BTreeMap<(ParamId, Residual), Vec<f32>> = BTreeMap::new();
        self.gradients.carried(|carried| {
            let Residuals { param, whose, places, values, .. } = carried;
            let elements = graph.param(param).elements() as usize;
            let tensor = all.entry((param, whose)).or_insert_with(|| vec![0.0; elements]);
            tensor[places].copy_from_slice(values);
        });
        let tensor = |((param, whose), values): ((ParamId, Residual), Vec<f32>)| {
            let param = graph.param(param);
            let name = format!("{}{}@rank-{rank}", param.name, suffix(whose));
            ResidualTensor { name, param: param.name.clone(), shape: param.shape.clone(), values }
        };
        all.into_iter().map(tensor).collect()
    }

    /// Carries what [`Rank::carried`] gave, by name. What is not there begins at 0.
    pub fn carry(&mut self, tensors: &BTreeMap<String, Vec<f32>>) {
        let (graph, rank) = (self.graph, self.replica.rank);
        self.gradients.carried(|carried| {
            let name = &graph.param(carried.param).name;
            let name = format!("{name}{}@rank-{rank}", suffix(carried.whose));
            match tensors.get(&name) {
                Some(values) => carried.values.copy_from_slice(&values[carried.places]),
                None => carried.values.fill(0.0),
            }
        });
    }

    /// Takes over what other ranks carried, all of it together by parameter: each of those that
    /// carry a value now takes its share. Where nobody does any more, the first rank that holds the
    /// parameter adds it to the next step's gradient.
    pub fn take_over(&mut self, totals: &BTreeMap<String, Vec<f32>>) {
        let graph = self.graph;
        self.gradients.carried(|carried| match totals.get(&graph.param(carried.param).name) {
            Some(total) if carried.whose == Residual::Worker => {
                let share = 1.0 / carried.holders as f32;
                let total = &total[carried.places];
                carried.values.iter_mut().zip(total).for_each(|(own, all)| *own = all * share);
            }
            _ => carried.values.fill(0.0),
        });
        self.owe_parts(totals);
        let program = self.program;
        let first = program.stages.iter().filter(|stage| {
            stage.first_copy && self.replica.index == 0 && !stage.divides_gradients()
        });
        for place in first.flat_map(|stage| &stage.params) {
            let total = totals.get(&graph.param(place.param).name);
            let nobody = !self.gradients.carries(place.param);
            if let (Some(gradient), Some(total), true) = (place.gradient, total, nobody) {
                let values = self.arena.floats(gradient);
                values.iter_mut().zip(total).for_each(|(gradient, owed)| *gradient += owed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::residual_param;

    #[test]
    fn names_say_what_is_carried() {
        assert_eq!(residual_param("fc1.weight@residual@rank-3"), Some("fc1.weight"));
        assert_eq!(residual_param("fc1.weight@sum-residual@rank-0"), Some("fc1.weight"));
        for other in ["fc1.weight", "fc1.weight@momentum_buffer", "bn1.running_mean@rank-3"] {
            assert_eq!(residual_param(other), None, "{other}");
        }
    }
}
