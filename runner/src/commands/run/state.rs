//! What a run begins with and what it keeps: initial weights, checkpoints.

use crate::args::RunArgs;
use crate::checkpoint::{
    Begun, CheckpointError, FOLDER, Identity, LATEST, Resume, Saver, SplitRecord, load,
};
use crate::execute::{Rank, RunError};
use crate::failure::Failure;
use crate::transport::Transport;
use pipewright_core::graph::Graph;
use pipewright_core::plan::Plan;

/// Where tensors come from and where they go.
pub(super) struct State {
    identity: Identity,
    resume: Option<Resume>,
    /// When and where to save.
    pub saver: Option<Saver>,
}

impl State {
    /// Finds checkpoints and weights, and refuses what does not fit the plan.
    pub fn prepare(
        args: &RunArgs,
        plan: &Plan,
        graph: &Graph,
        train_samples: u64,
    ) -> Result<Self, Failure> {
        let refused = |e: CheckpointError| Failure::usage(e.to_string());
        let identity = Identity::new(plan, graph, train_samples);
        let resume = match &args.resume {
            Some(name) if name == LATEST && args.out.is_none() => {
                return Err(Failure::usage(
                    "--resume latest looks into the folder of --out; give that, or a checkpoint",
                ));
            }
            Some(name) => Some(Resume::find(name, args.out.as_deref()).map_err(refused)?),
            None => None,
        };
        if let Some(resume) = &resume {
            resume.check(&identity).map_err(refused)?;
        }
        let saver = args.save_every.zip(args.out.as_ref()).map(|(every, out)| Saver {
            folder: out.join(FOLDER),
            every,
            keep: args.keep as usize,
            identity: identity.clone(),
            split: SplitRecord {
                cuts: plan.cuts.clone(),
                schedule: plan.schedule.name.clone(),
                micro_batches: plan.micro_batches,
            },
            mini_batch: plan.mini_batch,
        });
        Ok(Self { identity, resume, saver })
    }

    /// Whether the run goes on with the one whose files are in its folder.
    pub fn continues(&self, args: &RunArgs) -> bool {
        self.resume.as_ref().zip(args.out.as_ref()).is_some_and(|(resume, out)| resume.is_of(out))
    }

    /// Gives a rank the tensors that it begins with. Collective.
    pub fn begin<T: Transport>(&self, rank: &mut Rank<T>) -> Result<Begun, RunError> {
        match &self.resume {
            Some(resume) => load(rank, resume, &self.identity),
            None => Ok(Begun::default()),
        }
    }
}
