//! State that a run begins with and keeps: initial weights, checkpoints.

use crate::args::RunArgs;
use crate::checkpoint::{
    Begun, CheckpointError, FOLDER, Hosts, Identity, LATEST, Resume, Saver, SplitRecord,
    bring_together, load,
};
use crate::elastic::RankSession;
use crate::execute::{Rank, RunError};
use crate::failure::Failure;
use crate::train::TrainError;
use crate::transport::Transport;
use crate::weights::{self, WeightSource};
use pipewright_core::graph::Graph;
use pipewright_core::plan::Plan;
use std::path::Path;

/// Where tensors come from and where they go.
pub(super) struct RunState {
    identity: Identity,
    split: SplitRecord,
    resume: Option<Resume>,
    /// What training begins with where there is no checkpoint.
    weights: Option<Box<dyn WeightSource>>,
    /// When and where to save.
    pub saver: Option<Saver>,
    /// Where the state of each step is kept, in an elastic job.
    memory: Option<Saver>,
    /// A handle for sends that no program uses.
    handle: usize,
}

/// What of a run decides where its tensors come from and go.
pub(super) struct Parts<'a> {
    pub plan: &'a Plan,
    pub graph: &'a Graph,
    pub train_samples: u64,
    /// This rank's, in an elastic job.
    pub session: Option<&'a RankSession>,
    /// A handle for sends that no program uses.
    pub handle: usize,
}

impl RunState {
    /// Finds checkpoints and weights, and refuses what does not fit the plan. Only one process
    /// `speaks` of what is odd.
    pub fn prepare(args: &RunArgs, parts: Parts, speaks: bool) -> Result<Self, Failure> {
        let Parts { plan, graph, train_samples, session, handle } = parts;
        let refused = |e: CheckpointError| Failure::usage(e.to_string());
        let identity = Identity::new(plan, graph, train_samples);
        let split = SplitRecord::new(plan);
        let resume = match &args.resume {
            Some(name) if name == LATEST && args.out.is_none() => {
                return Err(Failure::usage(
                    "--resume latest looks into the folder of --out; give that, or a checkpoint",
                ));
            }
            Some(name) => Some(Resume::find(name, args.out.as_deref()).map_err(refused)?),
            None => None,
        };
        let memory = session.map(|session| session.session.state());
        if let Some(resume) = &resume {
            resume.check(&identity).map_err(refused)?;
        }
        let saver = |folder, every, keep| Saver {
            folder,
            every,
            keep,
            identity: identity.clone(),
            split: split.clone(),
            fence: session.map(|session| session.fence.clone()),
            hosts: None,
        };
        let memory = memory.map(|folder| saver(folder, args.state_every, 1));
        let disk = args.save_every.zip(args.out.as_ref());
        let saver = disk.map(|(every, out)| saver(out.join(FOLDER), every, args.keep as usize));
        // A run that goes on does not look at what it began with: the file may be gone.
        let begins = resume.as_ref().is_none_or(|resume| resume.candidates.is_empty());
        let named = args.weights.as_deref().or(plan.weights.as_deref().map(Path::new));
        let weights = match named.filter(|_| begins) {
            Some(path) => Some(weights::open_fitting(path, graph, speaks)?),
            None => None,
        };
        Ok(Self { identity, split, resume, weights, saver, memory, handle })
    }

    /// Whether the run goes on with the one whose files are in its folder.
    pub fn continues(&self, args: &RunArgs) -> bool {
        self.resume.as_ref().zip(args.out.as_ref()).is_some_and(|(resume, out)| resume.is_of(out))
    }

    /// Where the state of each step is kept, in an elastic job. Collective: each host has a folder of its
    /// own, and first of all whatever is left on any of them, of however many hosts it was.
    pub fn memory<T: Transport>(&self, rank: &mut Rank<T>) -> Result<Option<Saver>, TrainError> {
        let Some(memory) = &self.memory else { return Ok(None) };
        let lost = |source| RunError::Agreement { step: 0, source };
        let hosts = Hosts::find(&mut rank.transport, self.handle).map_err(lost)?;
        let together = bring_together(&mut rank.transport, &hosts, &memory.folder).map_err(lost)?;
        together.map_err(TrainError::Resume)?;
        let several = hosts.are_several();
        let keep = if several { 2 } else { memory.keep };
        Ok(Some(Saver { hosts: several.then_some(hosts), keep, ..memory.clone() }))
    }

    /// Gives a rank the tensors that it begins with. Collective.
    pub fn begin<T: Transport>(
        &self,
        rank: &mut Rank<T>,
        memory: Option<&Saver>,
    ) -> Result<Begun, TrainError> {
        let resume = self.resume.clone().map(|resume| match memory {
            Some(memory) => resume.with_memory(&memory.folder),
            None => Ok(resume),
        });
        let resume = resume.transpose().map_err(TrainError::Resume)?;
        if let Some(resume) = &resume {
            let lost = |source| RunError::Agreement { step: 0, source };
            let begun = load(rank, resume, (&self.identity, &self.split)).map_err(lost)?;
            if let Some(begun) = begun.map_err(TrainError::Resume)? {
                return Ok(begun);
            }
        }
        if let Some(source) = &self.weights {
            weights::load(rank, source.as_ref()).map_err(TrainError::Weights)?;
        }
        Ok(Begun::default())
    }
}
