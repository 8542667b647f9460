//! A real etcd, started by the test: the suite of memberships, outages, jobs that meet there.

use crate::common::{RUNNER, scratch, write};
use crate::job::{Job, mpi, processes, two_by_two};
use crate::membership::{TIME_TO_LIVE, conforms, node, until};
use pipewright_core::elastic::Verdict;
use pipewright_runner::elastic::journal::{Cause, Event};
use pipewright_runner::elastic::membership::etcd::EtcdMembership;
use pipewright_runner::elastic::membership::{Held, Membership, MembershipError, Notice};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);

/// An etcd of one member.
struct Etcd {
    program: PathBuf,
    child: Child,
    dir: PathBuf,
    ports: [u16; 2],
}

impl Etcd {
    /// `None` where it is not installed, which has been said.
    fn start(dir: &Path) -> Option<Self> {
        let Some(program) = pipewright::tools::find("ETCD", &["etcd"]) else {
            pipewright::tools::skip("etcd");
            return None;
        };
        // Free now; both are held until both are known.
        let free = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let ports = free.each_ref().map(|port| port.local_addr().unwrap().port());
        drop(free);
        let child = run(&program, dir, ports);
        Some(Self { program, child, dir: dir.into(), ports })
    }

    fn address(&self) -> String {
        format!("http://127.0.0.1:{}", self.ports[0])
    }

    fn stop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn again(&mut self) {
        self.child = run(&self.program, &self.dir, self.ports);
    }

    /// With nothing of what it knew.
    fn forget(&self) {
        std::fs::remove_dir_all(self.dir.join("etcd")).unwrap();
    }

    fn membership(&self, job: &str) -> EtcdMembership {
        let begin = Instant::now();
        loop {
            match EtcdMembership::connect(&self.address(), job, TIME_TO_LIVE) {
                Ok(membership) => return membership,
                Err(e) => assert!(begin.elapsed() < LIMIT, "{e}"),
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

fn run(program: &Path, dir: &Path, [client, peer]: [u16; 2]) -> Child {
    let (client, peer) = (format!("http://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
    let mut command = Command::new(program);
    command.args(["--data-dir", "etcd", "--name", "one", "--logger", "zap"]);
    command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
    command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
    command.args(["--initial-cluster", &format!("one={peer}"), "--unsafe-no-fsync"]);
    let log = std::fs::File::options().create(true).append(true).open(dir.join("etcd.log"));
    command.current_dir(dir).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log.unwrap());
    command.spawn().unwrap()
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn etcd_conforms() {
    let dir = scratch("etcd-conforms");
    let Some(etcd) = Etcd::start(&dir) else { return };
    conforms(&etcd.membership("one"), &etcd.membership("one"));
    // Jobs do not see each other.
    let (one, two) = (etcd.membership("one"), etcd.membership("two"));
    let lease = one.join(&node("a", 1)).unwrap();
    assert_eq!(two.members().unwrap(), []);
    assert_eq!(two.generation().unwrap(), 0);
    drop(two.lead("here").unwrap());
    drop(lease);
}

#[test]
fn etcd_that_goes_and_comes_back() {
    let dir = scratch("etcd-outage");
    let Some(mut etcd) = Etcd::start(&dir) else { return };
    let view = etcd.membership("job");
    let watch = view.watch();
    let lease = view.join(&node("a", 1)).unwrap();
    let lead = view.lead("here").unwrap();
    assert_eq!(view.advance(6), Ok(7));
    let is_there = |notice: &Notice| matches!(notice, Notice::Members(m) if m.len() == 1);
    let lost = |notice: &Notice| matches!(notice, Notice::Disconnected(_));
    until(&watch, "member", is_there);
    etcd.stop();
    until(&watch, "loss", lost);
    assert!(matches!(view.members(), Err(MembershipError::Unreachable { .. })));
    let begin = Instant::now();
    while lease.held() == Held::Yes || lead.held() == Held::Yes {
        assert!(begin.elapsed() < LIMIT, "nobody renews it, and it is held");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(matches!(view.advance(7), Err(MembershipError::Unreachable { .. })));
    // All that it knew is gone. Who led does not lead, and the counter is put right by who does.
    etcd.forget();
    etcd.again();
    let empty = |notice: &Notice| matches!(notice, Notice::Members(m) if m.is_empty());
    until(&watch, "return", empty);
    assert_eq!(view.advance(7), Err(MembershipError::NotLeader));
    drop(lead);
    let lead = view.lead("here").unwrap();
    assert_eq!(view.generation(), Ok(0));
    assert_eq!(view.advance(7), Ok(8));
    drop((lease, lead));
    let refused = EtcdMembership::connect("http://127.0.0.1:1", "job", TIME_TO_LIVE).err();
    assert!(matches!(refused, Some(MembershipError::Unreachable { .. })), "{refused:?}");
}

/// A job trains on while etcd is gone, even beyond its leases, and does not begin anew before it is
/// back.
#[test]
fn a_job_outlives_its_etcd() {
    let dir = scratch("etcd-job");
    if !mpi() {
        return;
    }
    let Some(mut etcd) = Etcd::start(&dir) else { return };
    etcd.membership("wait-until-it-answers");
    write(&dir, "plan.json", two_by_two(20).to_json());
    let address = etcd.address();
    let args = ["--etcd", &address, "--steps", "1000000", "--save-every", "1000000"];
    let mut job = Job::start(&dir, "out", &args, "");
    job.until_training(1);
    etcd.stop();
    let lines = job.journal().len();
    let progress = |job: &Job| {
        let steps = job
            .journal()
            .into_iter()
            .skip(lines)
            .filter(|line| matches!(line.event, Event::Progress { generation: 1, .. }));
        steps.count()
    };
    // Longer than a lease lives.
    let begin = Instant::now();
    while progress(&job) < 8 {
        assert!(begin.elapsed() < LIMIT, "no progress: {}", job.log());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(job.log().contains("the coordinator is lost"), "{}", job.log());
    let victim = processes(&job.name).into_iter().max().unwrap();
    crate::job::signal(victim, "-KILL");
    let ended = |event: &Event| matches!(event, Event::Ended { .. }).then_some(());
    job.until("end", ended);
    // A new generation needs a number.
    std::thread::sleep(Duration::from_secs(1));
    let begun = |event: &Event| matches!(event, Event::Generation { generation: 2, .. });
    assert!(!job.journal().iter().any(|line| begun(&line.event)), "{:#?}", job.journal());
    etcd.again();
    job.until_training(2);
    job.signal("-TERM");
    job.ends(0);
    assert_eq!(job.causes(), [Cause::RankLost, Cause::Stopped]);
}

#[test]
fn members_join_by_etcd() {
    let dir = scratch("etcd-join");
    if !mpi() {
        return;
    }
    let Some(etcd) = Etcd::start(&dir) else { return };
    etcd.membership("wait-until-it-answers");
    write(&dir, "plan.json", two_by_two(20).to_json());
    let address = etcd.address();
    let args = ["--etcd", &address, "--slots", "0", "--policy", "fixed-size:4"];
    let mut job = Job::start(&dir, "out", &args, "");
    let mut join = Command::new(RUNNER);
    join.args(["join", "--etcd", &address, "--job", &job.name, "--slots", "4", "--name", "node"]);
    let mut join = join.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    job.ends(0);
    let waited =
        |event: &Event| matches!(event, Event::Verdict { verdict: Verdict::Run { .. }, .. });
    assert!(job.journal().iter().any(|line| waited(&line.event)));
    crate::job::signal(join.id(), "-KILL");
    join.wait().unwrap();
}
