//! The registry of a job's members, from the command line.

use crate::args::MeetingArgs;
use crate::elastic::Session;
use crate::elastic::membership::local::{Coordinator, LocalMembership};
use crate::elastic::membership::{Membership, MembershipError, TIME_TO_LIVE};
use crate::failure::{Code, Failure};

/// A membership, with the coordinator where it is this process's own.
pub struct Meeting {
    membership: Box<dyn Membership>,
    // Behind those who speak to it.
    _coordinator: Option<Coordinator>,
}

/// This machine's name.
pub fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// What a membership says is wrong.
pub fn failed(error: MembershipError) -> Failure {
    let code = match error {
        MembershipError::Unreachable { .. } => Code::Peers,
        _ => Code::Usage,
    };
    Failure::new(code, error.to_string())
}

impl Meeting {
    /// For a supervisor: without etcd it holds the meeting itself.
    pub fn hold(args: &MeetingArgs, job: &str, session: &Session) -> Result<Self, Failure> {
        if let Some(address) = &args.etcd {
            return Ok(Self { membership: etcd(address, job)?, _coordinator: None });
        }
        let socket = session.socket();
        let coordinator = Coordinator::start(&socket, TIME_TO_LIVE);
        let coordinator = coordinator.map_err(|e| Failure::file(&socket, &e))?;
        let membership = Box::new(LocalMembership::new(&socket, TIME_TO_LIVE));
        Ok(Self { membership, _coordinator: Some(coordinator) })
    }

    /// For members.
    pub fn find(args: &MeetingArgs) -> Result<Self, Failure> {
        let job = match (&args.job, &args.etcd) {
            (Some(job), _) => job.clone(),
            (None, Some(_)) => return Err(Failure::usage("--etcd needs --job NAME")),
            (None, None) => only()?,
        };
        let membership: Box<dyn Membership> = match &args.etcd {
            Some(address) => etcd(address, &job)?,
            None => Box::new(LocalMembership::new(&Session::of(&job).socket(), TIME_TO_LIVE)),
        };
        Ok(Self { membership, _coordinator: None })
    }

    /// The membership.
    pub fn membership(&self) -> &dyn Membership {
        self.membership.as_ref()
    }
}

/// The only job of this machine.
fn only() -> Result<String, Failure> {
    let running = Session::running();
    match &running[..] {
        [job] => Ok(job.clone()),
        [] => Err(Failure::usage("no elastic job runs on this machine")),
        several => {
            let names = several.join(", ");
            Err(Failure::usage(format!("which one? --job NAME; there are: {names}")))
        }
    }
}

#[cfg(feature = "etcd")]
fn etcd(address: &str, job: &str) -> Result<Box<dyn Membership>, Failure> {
    use crate::elastic::membership::etcd::EtcdMembership;
    Ok(Box::new(EtcdMembership::connect(address, job, TIME_TO_LIVE).map_err(failed)?))
}

#[cfg(not(feature = "etcd"))]
fn etcd(_: &str, _: &str) -> Result<Box<dyn Membership>, Failure> {
    Err(Failure::usage("this runner was built without etcd; build it with the feature `etcd`"))
}
