//! Numbers of devices with the best plan that was found for each, as `runner scale` has them.

use crate::base::shared::Shared;
use crate::base::texts::t;
use crate::planner::choices::ClusterChoice;
use crate::planner::found::apply;
use crate::planner::inputs::Inputs;
use pipewright_core::cost::Cluster;
use pipewright_core::graph::Graph;
use pipewright_core::predict::{Price, Speed, Throughput, amount, samples_of};
use pipewright_core::units::Nanos;
use pipewright_worker::protocol::FoundPlan;

/// A number of devices.
#[derive(Clone, Debug, PartialEq)]
pub struct Size {
    pub devices: u32,
    /// Its best plan, or why there is none.
    pub best: Result<Best, String>,
}

/// The fastest plan of a size.
#[derive(Clone, Debug, PartialEq)]
pub struct Best {
    pub found: FoundPlan,
    pub throughput: Throughput,
}

impl Best {
    /// What the picture shows of it: tokens per second where there are some, else samples.
    pub fn rate(&self) -> f64 {
        self.throughput.tokens_per_sec.unwrap_or(self.throughput.samples_per_sec)
    }
}

/// The inputs on a cluster with as many hosts as so many devices need.
///
/// # Errors
/// Where no cluster can be so large.
pub fn grown(inputs: &Inputs, devices: u32) -> Result<Inputs, String> {
    let chosen = inputs.cluster.cluster();
    let grown = chosen.grown(devices).map_err(|e| e.to_string())?;
    if grown.nodes <= chosen.nodes {
        return Ok(inputs.alone());
    }
    // A preset is known by its name, and this is none.
    let base = chosen.name.split(" × ").next().unwrap_or(&chosen.name);
    let name = format!("{base} × {}", grown.nodes);
    let cluster = ClusterChoice::File(Shared::new(Cluster { name, ..grown }));
    Ok(Inputs { cluster, ..inputs.alone() })
}

/// The fastest of the plans on exactly so many devices that fits them; `inputs` are what was searched for.
pub fn best(devices: u32, found: &[FoundPlan], inputs: &Inputs) -> Size {
    let memory = inputs.cluster().device.memory.0;
    let uses = |plan: &&FoundPlan| {
        plan.peak <= memory && apply(plan, inputs).is_ok_and(|next| next.ranks() == devices)
    };
    let fastest = found.iter().filter(uses).min_by_key(|plan| plan.step);
    let none = || t("no plan on exactly so many devices").to_owned();
    let best = fastest.cloned().ok_or_else(none).and_then(|found| {
        let (plan, prediction) = apply(&found, inputs)?.plan()?;
        let throughput = plan.throughput(&prediction.graph, Nanos(found.step));
        Ok(Best { found, throughput })
    });
    Size { devices, best }
}

impl Size {
    fn speed(&self) -> Option<Speed> {
        let throughput = self.best.as_ref().ok()?.throughput;
        Some(Speed { devices: self.devices, throughput })
    }

    /// Samples per second and device, as a share of those of the smallest of `all` that has a plan.
    pub fn efficiency(&self, all: &[Size]) -> Option<f64> {
        Some(self.speed()?.efficiency(&all.iter().find_map(Size::speed)?))
    }
}

/// What is trained, and what it costs, as typed: nothing where there is nothing to read.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bill {
    /// Samples to train on.
    samples: Option<f64>,
    price: Option<Price>,
}

impl Bill {
    /// Tokens where the network takes some, else samples; and what a device costs an hour.
    ///
    /// # Errors
    /// What is wrong with either.
    pub fn read(work: &str, price: &str, graph: &Graph) -> Result<Self, String> {
        let given = |text: &str| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
        let work = given(work).map(|text| amount(&text)).transpose()?;
        let price = given(price).map(|text| text.parse()).transpose()?;
        Ok(Self { samples: work.map(|work| samples_of(graph, work).unwrap_or(work)), price })
    }

    /// Days and cost of a size.
    pub fn of(&self, devices: u32, best: &Best) -> (Option<f64>, Option<f64>) {
        let days = self.samples.map(|samples| best.throughput.days(samples));
        (days, days.zip(self.price).map(|(days, price)| price.of(devices, days)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Question;
    use super::super::tests::searched;
    use super::*;
    use crate::planner::engine::{Ground, solve};
    use crate::planner::presets::first;

    #[test]
    fn sizes_have_plans_on_all_of_their_devices_and_hosts_as_needed() {
        let inputs = first();
        let inside = inputs.cluster().devices() as u32;
        let sizes = [inside / 2, 2 * inside];
        let all = sizes.map(|devices| {
            let inputs = grown(&inputs, devices).unwrap();
            assert_eq!(inputs.cluster == first().cluster, devices <= inside);
            assert!(inputs.cluster().devices() >= u64::from(devices));
            let size = best(devices, &searched(&inputs, devices), &inputs);
            let best = size.best.clone().unwrap();
            let next = apply(&best.found, &inputs).unwrap();
            assert_eq!(next.ranks(), devices);
            let solved = solve(&next, &Ground::of(&next)).unwrap();
            assert_eq!(solved.figures.step.0, best.found.step);
            size
        });
        let [small, large] = all.each_ref().map(|size| size.best.as_ref().unwrap());
        assert_eq!(all[0].efficiency(&all), Some(1.0));
        let ratio = large.rate() / small.rate() / 4.0;
        assert!((all[1].efficiency(&all).unwrap() - ratio).abs() < 1e-9);
        assert!(large.rate() > small.rate());
    }

    #[test]
    fn a_question_is_the_same_on_more_hosts_of_the_same_machine() {
        let inputs = first();
        let more = grown(&inputs, 4 * inputs.cluster().devices() as u32).unwrap();
        let asked = |inputs: &Inputs| Question::of(inputs, 0);
        assert!(asked(&inputs) != asked(&more) && asked(&inputs).is_but_for_hosts(&asked(&more)));
        let other = Inputs { mini_batch: 8, ..more };
        assert!(!asked(&inputs).is_but_for_hosts(&asked(&other)));
    }

    #[test]
    fn days_and_cost_follow_from_what_is_typed() {
        let graph = first().model.graph();
        let throughput = Throughput {
            samples_per_sec: 100.0,
            tokens_per_sec: None,
            device_flops_per_sec: None,
            mfu: None,
        };
        let best = Best { found: FoundPlan::default(), throughput };
        let of = |work, price| Bill::read(work, price, &graph).map(|bill| bill.of(8, &best));
        assert_eq!(of("8.64e6", "2.5/h"), Ok((Some(1.0), Some(480.0))));
        assert_eq!(of("8.64e6", ""), Ok((Some(1.0), None)));
        assert_eq!(of(" ", "2.5"), Ok((None, None)));
        assert!(of("many", "").is_err() && of("", "cheap").is_err());
    }
}
