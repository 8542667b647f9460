//! Ranks that profile and run plans: threads of this process, or processes of which the first one decides.

use crate::args::TuneArgs;
use crate::commands::profile::{self, Sizes, Times};
use crate::commands::run::{self, trial};
use crate::failure::{Code, Failure};
use crate::report::Outcome;
use crate::train::StopFlag;
use pipewright_core::cost::Cluster;
use pipewright_core::plan::Plan;

/// What a plan came to, or why it could not run; others may be tried all the same.
pub(super) type Trial = Result<Outcome, Failure>;

/// Who measures. An error of a call itself ends the tuning.
pub(super) trait Ranks {
    /// The cluster of `plan` as this machine is, with times of the model's nodes.
    fn profile(&mut self, plan: &Plan) -> Result<Cluster, Failure>;

    /// Trains by `plan`, for its steps.
    fn run(&mut self, plan: &Plan) -> Result<Trial, Failure>;

    /// Nothing more is asked; other ranks end with `code`, if they are processes; none is success.
    fn finish(self, code: Option<Code>) -> Result<(), Failure>;
}

/// Plans with other micro-batches are to come.
fn times(args: &TuneArgs, plan: &Plan) -> Result<Times, Failure> {
    let threads = run::threads(args.threads, plan.ranks())?;
    Ok(Times { repeats: args.repeats, sizes: Sizes::Wide, threads })
}

/// Threads of this process.
pub(super) struct Threads<'a> {
    pub args: &'a TuneArgs,
    pub stop: StopFlag,
}

impl Ranks for Threads<'_> {
    fn profile(&mut self, plan: &Plan) -> Result<Cluster, Failure> {
        profile::with_threads(plan, self.args.device, times(self.args, plan)?)
    }

    fn run(&mut self, plan: &Plan) -> Result<Trial, Failure> {
        Ok(trial::with_threads(&self.args.run(), plan, &self.stop))
    }

    fn finish(self, _: Option<Code>) -> Result<(), Failure> {
        Ok(())
    }
}

#[cfg(feature = "mpi")]
pub(super) use processes::Processes;

#[cfg(feature = "mpi")]
mod processes {
    use super::{Ranks, Trial, profile, trial};
    use crate::args::TuneArgs;
    use crate::failure::{Code, Failure};
    use crate::train::StopFlag;
    use crate::transport::TransportError;
    use crate::transport::mail::from_first;
    use crate::transport::mpi::MpiTransport;
    use pipewright_core::cost::Cluster;
    use pipewright_core::plan::Plan;
    use serde::{Deserialize, Serialize};

    /// What the first rank has all of them do.
    #[derive(Serialize, Deserialize)]
    enum Order {
        Profile(String),
        Run(String),
        /// With that exit code.
        End(u8),
    }

    /// Processes that MPI has started, this one among them.
    pub(in super::super) struct Processes<'a> {
        args: &'a TuneArgs,
        /// None once the ranks cannot go on together.
        transport: Option<MpiTransport>,
        stop: StopFlag,
    }

    fn mpi(error: TransportError) -> Failure {
        Failure::new(Code::Failed, format!("MPI: {error}"))
    }

    fn apart() -> Failure {
        Failure::silent(Code::Peers)
    }

    impl<'a> Processes<'a> {
        pub fn new(args: &'a TuneArgs, transport: MpiTransport, stop: StopFlag) -> Self {
            Self { args, transport: Some(transport), stop }
        }

        /// Does what the first rank says until that is the end.
        pub fn follow(mut self) -> Result<(), Failure> {
            loop {
                // What a rank alone finds wrong the first one hears of: there it is said.
                match self.order(Order::End(0))? {
                    Order::Profile(plan) => drop(self.measure(&read(&plan)?)?),
                    Order::Run(plan) => drop(self.train(&read(&plan)?)?),
                    Order::End(code) => {
                        self.transport.take().map_or(Ok(()), MpiTransport::finish).map_err(mpi)?;
                        return match code {
                            0 => Ok(()),
                            code => Err(Failure::silent(Code::from_number(code))),
                        };
                    }
                }
            }
        }

        /// Everybody gets the first rank's order.
        fn order(&mut self, mine: Order) -> Result<Order, Failure> {
            let transport = self.transport.as_mut().ok_or_else(apart)?;
            // Between runs no send is under way.
            transport.reserve(1);
            let text = serde_json::to_vec(&mine).expect("plain data");
            let text = from_first(transport, 0, text).map_err(mpi)?;
            Ok(serde_json::from_slice(&text).expect("written by the same program"))
        }

        fn measure(&mut self, plan: &Plan) -> Result<Result<Option<Cluster>, Failure>, Failure> {
            let transport = self.transport.as_mut().ok_or_else(apart)?;
            let measured = super::times(self.args, plan).and_then(|times| {
                profile::with_processes(transport, plan, self.args.device, times)
            });
            trial::agreed(transport, measured).map_err(mpi)
        }

        fn train(&mut self, plan: &Plan) -> Result<Trial, Failure> {
            let transport = self.transport.take().ok_or_else(apart)?;
            let (ended, transport) =
                trial::with_processes(transport, &self.args.run(), plan, &self.stop);
            self.transport = transport;
            match &self.transport {
                Some(_) => Ok(ended),
                None => Err(ended.err().unwrap_or_else(apart)),
            }
        }
    }

    /// A plan that the first rank has sent.
    fn read(text: &str) -> Result<Plan, Failure> {
        Plan::from_json(text).map_err(|e| Failure::new(Code::Plan, e.to_string()))
    }

    impl Ranks for Processes<'_> {
        fn profile(&mut self, plan: &Plan) -> Result<Cluster, Failure> {
            self.order(Order::Profile(plan.to_json()))?;
            Ok(self.measure(plan)??.expect("the first rank has what was measured"))
        }

        fn run(&mut self, plan: &Plan) -> Result<Trial, Failure> {
            self.order(Order::Run(plan.to_json()))?;
            self.train(plan)
        }

        fn finish(mut self, code: Option<Code>) -> Result<(), Failure> {
            if self.transport.is_some() {
                self.order(Order::End(code.map_or(0, |code| code as u8)))?;
                self.transport.take().map_or(Ok(()), MpiTransport::finish).map_err(mpi)?;
            }
            Ok(())
        }
    }
}
