//! One behaviour of every membership: the embedded one, and etcd's.

use pipewright_runner::elastic::membership::local::{Coordinator, LocalMembership};
use pipewright_runner::elastic::membership::{
    Held, Lease, Membership, MembershipError, News, Node, Notice,
};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

/// Short, so that expiry takes no long test; whole seconds, as etcd has them.
pub const TIME_TO_LIVE: Duration = Duration::from_secs(2);

const LIMIT: Duration = Duration::from_secs(60);

pub fn node(name: &str, slots: u32) -> Node {
    Node { name: name.into(), slots, host: "here".into(), leaving: false }
}

fn names(nodes: &[Node]) -> Vec<&str> {
    nodes.iter().map(|node| node.name.as_str()).collect()
}

/// Waits until the watch says what is wanted.
#[track_caller]
pub fn until(watch: &Receiver<Notice>, what: &str, wanted: impl Fn(&Notice) -> bool) -> Notice {
    let begin = Instant::now();
    let mut last = None;
    while let Some(left) = LIMIT.checked_sub(begin.elapsed()) {
        match watch.recv_timeout(left) {
            Ok(notice) if wanted(&notice) => return notice,
            other => last = Some(other),
        }
    }
    panic!("still no {what}: {last:?}")
}

#[track_caller]
fn until_names(watch: &Receiver<Notice>, wanted: &[&str]) {
    let named = |notice: &Notice| matches!(notice, Notice::Members(m) if names(m) == wanted);
    until(watch, &wanted.join(", "), named);
}

#[track_caller]
fn until_held(lease: &dyn Lease, wanted: Held) {
    let begin = Instant::now();
    while lease.held() != wanted {
        assert!(begin.elapsed() < LIMIT, "still {:?}", lease.held());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Two processes' views of one job.
pub fn conforms(a: &dyn Membership, b: &dyn Membership) {
    members_come_and_go(a, b);
    one_leads(a, b);
    generations_ascend(a, b);
    news_are_heard(a, b);
}

/// Two members whose leases, being renewed, have outlived their time.
fn renewed(
    a: &dyn Membership,
    b: &dyn Membership,
    watch: &Receiver<Notice>,
) -> (Box<dyn Lease>, Box<dyn Lease>) {
    let begin = Instant::now();
    loop {
        let first = a.join(&node("first", 2)).unwrap();
        let second = b.join(&node("second", 1)).unwrap();
        until_names(watch, &["first", "second"]);
        let undisturbed = passes(TIME_TO_LIVE * 2);
        let held = [first.held(), second.held()] == [Held::Yes; 2];
        let are_members = names(&a.members().unwrap()) == ["first", "second"];
        if held && are_members {
            return (first, second);
        }
        // A machine that lets nobody run for long renews nothing in time.
        assert!(!undisturbed && begin.elapsed() < LIMIT, "{:?}", (first.held(), second.held()));
        drop((first, second));
        until_names(watch, &[]);
    }
}

/// Waits for so long; whether this thread ran whenever it wanted to meanwhile.
fn passes(time: Duration) -> bool {
    let (begin, mut undisturbed) = (Instant::now(), true);
    while begin.elapsed() < time {
        let slept = Instant::now();
        std::thread::sleep(Duration::from_millis(10));
        undisturbed &= slept.elapsed() < TIME_TO_LIVE / 8;
    }
    undisturbed
}

fn members_come_and_go(a: &dyn Membership, b: &dyn Membership) {
    assert_eq!(a.members().unwrap(), []);
    let watch = a.watch();
    until_names(&watch, &[]);
    let (first, second) = renewed(a, b, &watch);
    assert_eq!(b.members().unwrap(), [node("first", 2), node("second", 1)]);
    // The same name twice, whoever comes second.
    assert_eq!(b.join(&node("first", 9)).err(), Some(MembershipError::Taken("first".into())));
    assert!(matches!(a.join(&node("a/b", 1)).err(), Some(MembershipError::Name(_))));
    // Asked to leave, it stays until the leader has let it go.
    a.leave("second").unwrap();
    let leaving = |notice: &Notice| match notice {
        Notice::Members(nodes) => nodes.iter().any(|node| node.name == "second" && node.leaving),
        Notice::Disconnected(_) => false,
    };
    until(&watch, "farewell", leaving);
    assert_eq!(second.held(), Held::Yes);
    a.remove("second").unwrap();
    until_names(&watch, &["first"]);
    until_held(second.as_ref(), Held::Removed);
    let unknown = a.leave("second").unwrap_err();
    assert!(unknown.to_string().contains("there are: first"), "{unknown}");
    a.remove("second").unwrap();
    // The name is free, and the old lease takes nothing from the new member.
    let again = b.join(&node("second", 3)).unwrap();
    drop(second);
    assert_eq!(a.members().unwrap(), [node("first", 2), node("second", 3)]);
    drop(first);
    until_names(&watch, &["second"]);
    drop(again);
    until_names(&watch, &[]);
}

fn one_leads(a: &dyn Membership, b: &dyn Membership) {
    let lead = a.lead("a").unwrap();
    assert_eq!(b.lead("b").err(), Some(MembershipError::NotLeader));
    assert_eq!(lead.held(), Held::Yes);
    drop(lead);
    let lead = b.lead("b").unwrap();
    assert_eq!(a.lead("a").err(), Some(MembershipError::NotLeader));
    drop(lead);
}

fn news_are_heard(a: &dyn Membership, b: &dyn Membership) {
    let news = News { idle: vec!["node-1".into()], done: Some(3) };
    a.tell(&news).unwrap();
    assert_eq!(b.news(), Ok(news));
    b.tell(&News::default()).unwrap();
    assert_eq!(a.news(), Ok(News::default()));
}

fn generations_ascend(a: &dyn Membership, b: &dyn Membership) {
    assert_eq!(a.generation().unwrap(), 0);
    assert_eq!(a.advance(0), Err(MembershipError::NotLeader));
    let lead = a.lead("a").unwrap();
    assert_eq!(a.advance(0), Ok(1));
    assert_eq!(a.advance(1), Ok(2));
    assert_eq!(b.generation().unwrap(), 2);
    assert_eq!(a.advance(1), Err(MembershipError::Generation { found: 2 }));
    assert_eq!(b.advance(2), Err(MembershipError::NotLeader));
    drop(lead);
    // Who led once does not any more.
    assert_eq!(a.advance(2), Err(MembershipError::NotLeader));
    let lead = b.lead("b").unwrap();
    assert_eq!(b.advance(2), Ok(3));
    // A counter that has lost what it knew is put right.
    assert_eq!(b.advance(10), Ok(11));
    assert_eq!(a.generation().unwrap(), 11);
    drop(lead);
}

#[test]
fn the_embedded_one_conforms() {
    let socket = socket("conforms");
    let coordinator = Coordinator::start(&socket, TIME_TO_LIVE).unwrap();
    let view = || LocalMembership::new(&socket, TIME_TO_LIVE);
    conforms(&view(), &view());
    drop(coordinator);
    assert!(!socket.exists());
}

/// Paths of sockets are short.
fn socket(name: &str) -> std::path::PathBuf {
    std::env::temp_dir().join(format!("pipewright-{name}-{}", std::process::id()))
}

#[test]
fn a_coordinator_that_goes_and_comes_back() {
    let socket = socket("comes-back");
    let coordinator = Coordinator::start(&socket, TIME_TO_LIVE).unwrap();
    let view = LocalMembership::new(&socket, TIME_TO_LIVE);
    let watch = view.watch();
    let lease = view.join(&node("one", 1)).unwrap();
    until_names(&watch, &["one"]);
    drop(coordinator);
    let lost = |notice: &Notice| matches!(notice, Notice::Disconnected(_));
    until(&watch, "loss", lost);
    until_held(lease.as_ref(), Held::Expired);
    assert!(matches!(view.members(), Err(MembershipError::Unreachable { .. })));
    let coordinator = Coordinator::start(&socket, TIME_TO_LIVE).unwrap();
    until_names(&watch, &[]);
    let again = view.join(&node("one", 1)).unwrap();
    until_names(&watch, &["one"]);
    drop((again, coordinator));
}

#[test]
fn messages_that_are_none() {
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixStream;
    let socket = socket("messages");
    let _coordinator = Coordinator::start(&socket, TIME_TO_LIVE).unwrap();
    let long = format!("{}\n", "x".repeat(1 << 17));
    for text in ["hello\n", "{\"join\":{}}\n", "\n", &long] {
        let mut stream = UnixStream::connect(&socket).unwrap();
        // It may hang up before it has read all of it.
        let _ = stream.write_all(text.as_bytes());
        let mut answer = String::new();
        let read = BufReader::new(stream).read_line(&mut answer);
        let refused = answer.starts_with("{\"refused\":{\"message\":") || read.is_err();
        assert!(refused, "{answer}");
    }
    // Nobody says anything: such a connection is not kept for ever.
    let silent = UnixStream::connect(&socket).unwrap();
    silent.set_read_timeout(Some(LIMIT)).unwrap();
    let mut answer = String::new();
    assert!(matches!(BufReader::new(silent).read_line(&mut answer), Ok(0) | Err(_)));
    let view = LocalMembership::new(&socket, TIME_TO_LIVE);
    assert_eq!(view.members().unwrap(), []);
}
