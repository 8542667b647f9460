//! Memory in use over a step, from what ran when.

use super::{Lane, Span, Work};
use crate::plan::Program;
use crate::schedule::ActionKind;
use crate::units::Nanos;

impl Lane {
    /// A lane that executed `program` with these spans. Parameters are there all the time, a slot
    /// from the start of its forward pass to the end of its last backward part, scratch and outbox
    /// while an action runs.
    pub fn new(program: &Program, spans: Vec<Span>) -> Self {
        let mut held = program.persistent;
        let mut memory = vec![(Nanos::ZERO, held); 2 * spans.len() + 1];
        let mut last = 0;
        let slots = memory.as_mut_slice();
        // Of several entries of one moment the last one counts.
        let mut set = |moment, bytes| {
            last += usize::from(slots[last].0 != moment);
            slots[last] = (moment, bytes);
        };
        for span in &spans {
            let Work::Run(action) = span.work else { continue };
            let Some(stage) = program.stage(action.stage) else { continue };
            let scratch = match action.kind {
                ActionKind::Forward => {
                    held += stage.slots.bytes;
                    stage.transient_forward
                }
                ActionKind::Backward | ActionKind::BackwardInput | ActionKind::BackwardWeight => {
                    stage.transient_backward + stage.outbox.total()
                }
            };
            set(span.start, held + scratch);
            if matches!(action.kind, ActionKind::Backward | ActionKind::BackwardWeight) {
                held = held.saturating_sub(stage.slots.bytes);
            }
            set(span.end, held);
        }
        memory.truncate(last + 1);
        Self { spans, memory, arena: program.arena, asides: vec![] }
    }
}

#[cfg(test)]
mod tests {
    use crate::cost::Cluster;
    use crate::graph::presets::Preset;
    use crate::plan::{Draft, Model};

    #[test]
    fn what_is_in_use_fits_the_arena_and_returns_to_the_parameters() {
        let cluster = Cluster::preset("dgx-a100").unwrap();
        for (preset, cuts) in [(Preset::Vgg16, vec![7, 20]), (Preset::Resnet50, vec![40, 90])] {
            let draft = Draft::new(Model::Preset(preset), cluster.clone(), cuts);
            let (_, prediction) = draft.plan().unwrap();
            for (lane, program) in prediction.timeline.lanes.iter().zip(&prediction.programs) {
                assert!(lane.peak() <= lane.arena);
                assert!(lane.peak().0 as f64 >= 0.8 * lane.arena.0 as f64, "arena mostly used");
                assert_eq!(lane.memory.last().unwrap().1, program.persistent);
            }
        }
    }
}
